#include "partita/strategies/cost/explain_cost.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/plan/traffic.hpp"
#include "strategies/cost/build_terms.hpp"
#include "strategies/cost/evaluate_terms.hpp"
#include "strategies/cost/local_work.hpp"
#include "strategies/plan/layer_ops.hpp"

#include <algorithm>

namespace partita {

namespace {

/// Returns seconds with a unit, e.g. "12.5 us".
std::string time(double seconds) {
  if (seconds >= 1) return fmt::format("{:.3f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3f} ms", seconds * 1e3);
  return fmt::format("{:.3f} us", seconds * 1e6);
}

std::string rate(double per_second, std::string_view unit) {
  return fmt::format("{:.4g} G{}/s", per_second / 1e9, unit);
}

std::string_view name(Pass pass) {
  switch (pass) {
    case Pass::forward: return "forward";
    case Pass::backward_data: return "backward data";
    case Pass::backward_filter: return "backward filter";
    case Pass::stages: return "stages";
    case Pass::update: return "update";
  }
  return "";
}

std::string line(std::string_view pass, std::string_view what, double seconds, const std::string& formula) {
  return fmt::format("    {:<16} {:<22} {:>12} = {}\n", pass, what, time(seconds), formula);
}

/// The terms of a layer's communication, and the machine that prices them.
struct Priced {
  const CostTerms& terms;
  const MachineRates& rates;
  const Machine& machine;
};

/// e.g. "2 messages" or "1 round".
std::string count(double number, std::string_view what) {
  return fmt::format("{:.4g} {}{}", number, what, number == 1 ? "" : "s");
}

/// e.g. 6 rounds x 4 us (source) + 80000 bytes / 50 GB/s (8 ranks share 8 links of 50 GB/s, source) at level "network"
std::string formula(const Priced& priced, const LinkUse& use, std::string_view what, double turns) {
  const Link& link = priced.terms.links[use.link];
  const Level& level = priced.machine.levels[link.level];
  const MachineRates::LinkRate& rate_of = priced.rates.rate(use);
  if (use.rounds == 0)
    return fmt::format("{:.0f} bytes of the unit's ranks, which also pass its links at level \"{}\"", use.of_unit,
                       level.name);
  if (rate_of.measured != nullptr && what == "message")
    return fmt::format("{} of {:.0f} bytes at level \"{}\" ({})", count(use.rounds, what), use.bytes / use.rounds,
                       level.name, rate_of.measured->source);
  const bool unit_waits = use.of_unit * rate_of.per_byte_of_unit > use.bytes * rate_of.per_byte;
  const std::string shared =
      unit_waits         ? count(level.links.value, "link") + " of"
      : link.sharing > 1 ? fmt::format("{} share {} of", count(link.sharing, "rank"), count(level.links.value, "link"))
      : link.width > 1   ? count(link.width, "link") + " of"
                         : "a link of";
  const std::string number = what == "message" && turns < use.rounds
                                 ? fmt::format("{} {}, {} x", count(use.rounds, what),
                                               turns == 1 ? "at once" : "in " + count(turns, "turn"), turns)
                                 : count(use.rounds, what) + " x";
  const double bytes = unit_waits ? use.of_unit : use.bytes;
  const double per_byte = unit_waits ? rate_of.per_byte_of_unit : rate_of.per_byte;
  return fmt::format("{} {} ({}) + {:.0f} bytes{} / {} ({} {}, {}) at level \"{}\"", number, time(level.latency.value),
                     level.latency.source, bytes, unit_waits ? " of the unit's ranks" : "", rate(1 / per_byte, "B"),
                     shared, rate(level.bandwidth.value, "B"), level.bandwidth.source, level.name);
}

std::string sum_of(const Priced& priced, std::span<const LinkUse> uses, std::string_view what, double turns) {
  std::string text;
  for (const LinkUse& use : uses) text += (text.empty() ? "" : " + ") + formula(priced, use, what, turns);
  return text;
}

/// The messages of an exchange in the direction that takes longer.
std::string exchange_formula(const Priced& priced, const Movement& movement) {
  const CollectiveOption& option = priced.rates.slower_direction(movement);
  const auto uses = priced.rates.uses(option);
  return (uses.size() > 1 ? "the slowest of " : "") + sum_of(priced, uses, "message", option.turns);
}

/// One of the options of a collective.
std::string formula(const Priced& priced, const CollectiveOption& option) {
  const auto uses = priced.rates.uses(option);
  const auto at_once = [](const LinkUse& use) { return use.follows == Follows::at_once; };
  if (uses.size() > 1 && std::all_of(uses.begin() + 1, uses.end(), at_once))
    return "the slowest of " + sum_of(priced, uses, "round", 1);
  return sum_of(priced, priced.rates.slowest_uses(option), "round", 1);
}

/// e.g. "ring 27.98 ms, rabenseifner by levels 4.6 ms", the cheapest first.
std::string alternatives(const Priced& priced, const Movement& movement) {
  std::vector<std::pair<double, std::string>> all;
  const CollectiveOption* const best = priced.rates.cheapest(movement).option;
  constexpr double never = 1e6;  // seconds: switches that cannot add
  for (const CollectiveOption& option : priced.rates.options(movement))
    if (const double seconds = priced.rates.seconds(option);
        &option != best && seconds < never && priced.machine.collectives.has(option.levels))
      all.emplace_back(seconds, name(option));
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string text;
  for (const auto& [seconds, option] : all)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", option, time(seconds));
  return text;
}

std::string formula(const Priced& priced, const PlannedTraffic& item, const Movement& movement) {
  const Route& route = priced.terms.routes[movement.route];
  if (item.verb == Verb::exchange) return exchange_formula(priced, movement);
  if (const Curve* const measured = priced.rates.measured(movement))
    return fmt::format("{} x the {} of {} bytes among {} ranks of level \"{}\" ({})", item.traffic.messages,
                       partita::name(item.verb), movement.bytes / movement.messages, route.ranks,
                       priced.machine.levels[route.level].name, measured->source);
  const CollectiveOption& option = *priced.rates.cheapest(movement).option;
  return fmt::format("{} {} by {} over {} ranks: {}{}; otherwise {}", item.traffic.messages, partita::name(item.verb),
                     name(option), route.ranks, formula(priced, option),
                     option.combined > 0 ? fmt::format(" + {:.0f} bytes added", option.combined) : "",
                     alternatives(priced, movement));
}

std::string measured(const KernelTimes& times, const std::string& work, Loop loop) {
  const Loop in = *times.nearest(work, loop);
  return fmt::format("measured on {}, with {} of {} microbatches in flight: {}", times.where(), in.in_flight,
                     in.microbatches, work);
}

/// Returns where a kernel's share comes from, e.g. "[efficiency.others], as there is no [efficiency.conv] (assumed)".
std::string share_source(const Machine& machine, const KernelTerm& kernel, DType dtype) {
  const Curve* const curve = machine.share(kernel.kind, dtype);
  if (curve == nullptr) return "no efficiency given";
  const std::string own = machine.efficiency.contains(kernel.kind)
                              ? fmt::format("[efficiency.{}]", partita::name(kernel.kind))
                              : fmt::format("[efficiency.others], as there is no [efficiency.{}]", name(kernel.kind));
  const Constant& width = machine.find_efficiency(kernel.kind)->width;
  const std::string narrow = kernel.narrowest < width.value
                                 ? fmt::format(", times {:.0f} / {:.0f} of its narrowest extent ({})", kernel.narrowest,
                                               width.value, width.source)
                                 : "";
  return fmt::format("{} ({}){}", own, curve->source, narrow);
}

/// Returns where the bandwidth of memory comes from, e.g. "64 ranks share 204.8 GB/s of a socket (a document)".
std::string memory_source(const Machine& machine, const MachineRates& rates) {
  const Constant &own = machine.memory_bandwidth, &shared = machine.socket.memory_bandwidth;
  if (rates.memory_bandwidth() == own.value) return own.source;
  return fmt::format("{} share {} of a socket ({})", count(shared.value / rates.memory_bandwidth(), "rank"),
                     rate(shared.value, "B"), shared.source);
}

/// The seconds of one kernel that moves `bytes`.
std::string work_formula(const MachineRates& rates, const Machine& machine, const KernelTerm& kernel, double bytes,
                         DType dtype) {
  const Constant& peak = machine.peak(kernel.kind, dtype);
  return fmt::format(
      "kernel {} ({}) + max({:.4g} operations / ({} x {:.3g}), {:.4g} bytes / {}): arithmetic {}; share {}; memory {}",
      time(machine.kernel.value), machine.kernel.source, kernel.flops, rate(peak.value, "flop"), rates.share(kernel),
      bytes, rate(rates.memory_bandwidth(), "B"), peak.source, share_source(machine, kernel, dtype),
      memory_source(machine, rates));
}

/// The seconds of all kernels of a pass.
std::string work_formula(const MachineRates& rates, const Machine& machine, const KernelTerm& kernel, Pass pass,
                         DType dtype) {
  std::string text;
  for (const auto& [number, bytes] :
       {std::pair(kernel.forwards[pass], kernel.bytes), {kernel.backwards[pass], kernel.backward_bytes}}) {
    if (number == 0) continue;
    text += text.empty() ? "" : " + ";
    if (number > 1) text += fmt::format("{} x ", number);
    text += work_formula(rates, machine, kernel, bytes, dtype);
  }
  if (kernel.added[pass] > 0)
    text +=
        fmt::format(" + {:.4g} bytes of further passes / {}", kernel.added[pass], rate(rates.memory_bandwidth(), "B"));
  return text;
}

/// e.g. "rank 3 of its grid", or, if passes have different slowest ranks, each with its pass.
std::string slowest_ranks(const LayerCost& cost) {
  std::string each;
  bool same = true;
  for (const Pass pass : microbatch_passes) {
    if (cost_of(cost, pass).total() == 0) continue;
    same = same && cost_of(cost, pass).rank == cost.rank;
    each += fmt::format("{}{} ({})", each.empty() ? "" : ", ", cost_of(cost, pass).rank, name(pass));
  }
  return same ? fmt::format("rank {} of its grid", cost.rank) : fmt::format("ranks {} of its grid", each);
}

/// Explains one layer, on the ranks that are charged.
class Explanation {
 public:
  Explanation(const Plan& plan, const Machine& machine, const KernelTimes& times, int index, std::optional<int> on)
      : plan_(plan),
        machine_(machine),
        times_(times),
        index_(index),
        on_(on),
        layer_(plan.layers[index]),
        grid_(plan.grid_of(index)),
        builder_(plan, machine, times, splits_backward(plan.schedule)),
        ranks_(on ? std::vector{builder_.layer_on(index, *on)} : builder_.layer(index, false)),
        cost_(rates().layer(ranks_)) {}

  std::string print() && {
    text_ = fmt::format("{}: {} per microbatch of {} samples, on {}{}\n", layer_.name, time(total()),
                        plan_.samples(0).extent(), slowest_ranks(cost_), on_ ? "" : ", the slowest");
    for (const Pass pass : microbatch_passes) add_compute(pass);
    for (const Pass pass : microbatch_passes) add_messages(pass);
    const auto once = on_ ? std::vector{GradReduceTerms{.rank = *on_}} : builder_.sums(index_);
    for (const auto list :
         {&GradReduceTerms::sums, &GradReduceTerms::replicas, &GradReduceTerms::after, &GradReduceTerms::loss})
      add_once(once, list);
    for (const Pass pass : microbatch_passes) add_hidden(pass);
    return std::move(text_);
  }

 private:
  // Made anew for each use, since a movement may add to the terms.
  MachineRates rates() const { return {builder_.terms(), machine_}; }
  double total() const { return cost_.forward.total() + cost_.backward_data.total() + cost_.backward_filter.total(); }
  /// Returns the rank that is charged in a pass.
  const RankTerms& slowest_in(Pass pass) const {
    return *std::find_if(ranks_.begin(), ranks_.end(),
                         [&](const RankTerms& each) { return each.rank == cost_of(cost_, pass).rank; });
  }

  void add_compute(Pass pass) {
    const double compute = cost_of(cost_, pass).compute;
    if (compute == 0) return;
    const int rank = cost_of(cost_, pass).rank;
    text_ +=
        line(name(pass), "compute", compute,
             cost_.measured
                 ? measured(times_, local_work(layer_, rank, plan_.workload), timed_loop(plan_, plan_.stage_of(index_)))
                 : work_formula(rates(), machine_, builder_.kernel(index_, rank), pass, plan_.workload.dtype));
  }

  void add(const PlannedTraffic& item, const Movement& movement) {
    const MachineRates rates = this->rates();
    text_ += line(name(item.pass), item.role, rates.seconds(movement).all,
                  formula({builder_.terms(), rates, machine_}, item, movement));
  }

  /// Adds the messages of a pass. Sums before a transfer count toward forward.
  void add_messages(Pass pass) {
    const RankTerms& slowest = slowest_in(pass);
    auto in_stage = slowest.movements.begin();  // in the same order
    for (const auto& item : microbatch_traffic(plan_, index_, grid_.first_rank() + slowest.rank, false, true)) {
      const bool crosses = item.purpose == Purpose::stages && item.axes == 0;
      const Movement movement = crosses ? transfer(item, slowest.rank) : (in_stage++)->movement;
      if ((item.pass == Pass::stages ? Pass::forward : item.pass) == pass) add(item, movement);
    }
  }

  /// Returns a transfer between stages as its slowest rank sees it, on either stage.
  Movement transfer(const PlannedTraffic& item, int rank) {
    using enum StepOp::Kind;
    if (on_) return builder_.transfer_on(item, grid_, rank);
    StepOp sent = item.op;
    sent.kind = sent.kind == send_output || sent.kind == receive_input ? send_output : send_gradient;
    const auto all = builder_.transfer(sent, 0);
    const MachineRates rates = this->rates();
    return *std::max_element(all.begin(), all.end(), [&](const Movement& a, const Movement& b) {
      return rates.seconds(a).all < rates.seconds(b).all;
    });
  }

  /// Adds the messages of one kind that happen once per step, on the rank that is charged for them. If several take as
  /// long, it takes the one whose microbatch is explained.
  void add_once(const std::vector<GradReduceTerms>& ranks, std::vector<Movement> GradReduceTerms::*list) {
    if (ranks.empty()) return;
    const MachineRates rates = this->rates();
    const auto order = [&](const GradReduceTerms& each) {
      return std::pair(rates.seconds(each.*list).all, each.replica == 0 && each.rank == cost_.rank);
    };
    const auto slowest =
        std::max_element(ranks.begin(), ranks.end(), [&](const auto& a, const auto& b) { return order(a) < order(b); });
    const int rank = slowest->rank;
    const Grid& there = plan_.grid_of(index_, slowest->replica);
    for (auto& item : step_traffic(plan_, index_, there.first_rank() + rank)) {
      if (list_of(item.op) != list) continue;
      if (rank != cost_.rank) item.role += fmt::format(" on rank {}", rank);
      add(item, builder_.movement(item, there, rank));
    }
  }

  void add_hidden(Pass pass) {
    const MachineRates rates = this->rates();
    const RankTerms& slowest = slowest_in(pass);
    double sum = 0;
    rates.each_movement(slowest, rates.layer(slowest), [&](const LayerMovement& each, const Seconds&, double hidden) {
      if (each.pass == pass) sum += hidden;
    });
    if (sum > 0)
      text_ += fmt::format("    {:<16} {:<22} {:>12} of the halos is hidden by computation\n", name(pass), "hidden",
                           time(sum));
  }

  const Plan& plan_;
  const Machine& machine_;
  const KernelTimes& times_;
  int index_;
  std::optional<int> on_;  // the rank to explain; none: the slowest
  const LayerPlan& layer_;
  const Grid& grid_;
  CostTermBuilder builder_;
  std::vector<RankTerms> ranks_;
  LayerCost cost_;
  std::string text_;
};

}  // namespace

std::string explain_cost(const Plan& plan, const Machine& machine, const KernelTimes& times, int index,
                         std::optional<int> on) {
  return Explanation(plan, machine, times, index, on).print();
}

}  // namespace partita
