// Seconds of terms, with a machine's constants:
//
//     a kernel       = launch + max(operations / (peak * share of it that is reached), bytes / memory bandwidth)
//     a message      = latency + bytes / (bandwidth * width * min(1, links / fan-out / ranks that share them))
//                      where the ranks of a unit may send unequally much:
//                      latency + max(bytes / (bandwidth * width), bytes of the unit / (bandwidth * links / fan-out))
//     an exchange    = the longest of its messages' times on each level, whose links are busy at the same time
//     a collective   = its messages by the cheapest way to run it, one after the other, or the longest of those that
//                      travel together (Follows) + 3 memory accesses for each byte that it adds
//     a layer's pass = computing + messages - what computing hides of them
#include "strategies/cost/evaluate_terms.hpp"

#include "strategies/cost/cost_terms.hpp"

#include <algorithm>

namespace partita {

namespace {

/// Returns the seconds that one rank's byte takes if `sharing` ranks use the links of a unit at the same time. An
/// oversubscribed network limits how many of the links can be busy at once, not how fast one of them is. Switches that
/// cannot add take forever.
double seconds_per_byte(const Level& level, const Link& link) {
  const double most = link.adds ? std::min(level.reduction.value, level.bandwidth.value) : level.bandwidth.value;
  const double busy = level.links.value / level.fan_out.value;
  constexpr double never = 1e100;
  return most > 0 ? 1 / (most * link.width * std::min(1.0, busy / link.sharing)) : never;
}

/// The pass to which a computation belongs.
Pass pass_of(Computation computation) {
  return computation == Computation::forward           ? Pass::forward
         : computation == Computation::backward_filter ? Pass::backward_filter
                                                       : Pass::backward_data;
}

Seconds split(double seconds, double overlap) { return {seconds * (1 - overlap), seconds}; }

double total(const LayerCost& cost) {
  return cost.forward.total() + cost.backward_data.total() + cost.backward_filter.total();
}

}  // namespace

MachineRates::MachineRates(const CostTerms& terms, const Machine& machine)
    : terms_(terms), machine_(machine), memory_(machine.bandwidth_of_each(terms.ranks)), gamma_(3 / memory_) {
  for (const KernelKind kind : {KernelKind::others, KernelKind::conv, KernelKind::product}) {
    const Efficiency* const efficiency = machine.find_efficiency(kind);
    kernels_[static_cast<std::size_t>(kind)] = {machine.peak(kind, terms.dtype).value, machine.share(kind, terms.dtype),
                                                efficiency == nullptr ? 0 : efficiency->width.value};
  }
  measured_.reserve(terms.routes.size());
  for (const Route& route : terms.routes) {
    const Level& level = machine.levels[route.level];
    const auto found = level.verbs.find({route.verb, route.ranks, route.inside});
    measured_.push_back(found == level.verbs.end() ? nullptr : &found->second);
  }
  links_.reserve(terms.links.size());
  for (const Link& link : terms.links) {
    const Level& level = machine.levels[link.level];
    const auto found = level.verbs.find({Verb::exchange, 2, 1});
    links_.push_back({level.latency.value, seconds_per_byte(level, link),
                      level.fan_out.value / (level.bandwidth.value * level.links.value), level.overlap.value,
                      found == level.verbs.end() ? nullptr : &found->second});
  }
}

namespace {

double& raise(double& time, double other) { return time = std::max(time, other); }
Seconds& raise(Seconds& time, const Seconds& other) {
  time.at_least(other);
  return time;
}

/// Uses of links, one after the other.
struct Path {
  double seconds = 0;
  std::vector<LinkUse> uses{};
  Path& operator+=(const Path& other) {
    seconds += other.seconds;
    uses.insert(uses.end(), other.uses.begin(), other.uses.end());
    return *this;
  }
};
Path& raise(Path& path, const Path& other) { return other.seconds > path.seconds ? path = other : path; }

}  // namespace

/// Adds up the times of(use) of a collective's uses of links, which follow each other as Follows says.
template <class Time, class Of>
Time MachineRates::in_turn(std::span<const LinkUse> uses, Of&& of) const {
  Time all{}, slowest{}, rank{}, round{};  // slowest: of the ranks since all waited for each other
  for (const LinkUse& use : uses) {
    if (use.follows == Follows::at_once) {
      raise(round, of(use));
      continue;
    }
    rank += round;
    if (use.follows != Follows::after) {
      raise(slowest, rank);
      rank = {};
    }
    if (use.follows == Follows::all_ranks) {
      all += slowest;
      slowest = {};
    }
    round = of(use);
  }
  rank += round;
  return all += raise(slowest, rank);
}

double MachineRates::seconds(const CollectiveOption& option) const {
  return in_turn<double>(uses(option), [&](const LinkUse& use) { return seconds(use); }) +
         combining_seconds(option.combined);
}

std::vector<LinkUse> MachineRates::slowest_uses(const CollectiveOption& option) const {
  return in_turn<Path>(uses(option), [&](const LinkUse& use) { return Path{seconds(use), {use}}; }).uses;
}

/// Levels that are busy at the same time keep the rank from computing as long as the one that does so longest.
double MachineRates::overlap(const CollectiveOption& option) const {
  const auto all = uses(option);
  if (all.size() == 1) return rate(all.front()).overlap;
  return in_turn<Seconds>(all, [&](const LinkUse& use) { return split(seconds(use), rate(use).overlap); }).overlap();
}

MachineRates::Choice MachineRates::cheapest(const Movement& movement) const {
  const auto all = options(movement);
  Choice best{&all.front(), seconds(all.front())};  // the first one is flat
  for (const CollectiveOption& option : all.subspan(1))
    if (const double seconds = this->seconds(option); seconds < best.seconds && machine_.collectives.has(option.levels))
      best = {&option, seconds};
  return best;
}

double MachineRates::exchange_seconds(const LinkUse& use, double turns) const {
  const LinkRate& link = rate(use);
  if (link.measured != nullptr) return use.rounds > 0 ? use.rounds * link.measured->seconds(use.bytes / use.rounds) : 0;
  return std::min(use.rounds, turns) * link.latency +
         std::max(use.bytes * link.per_byte, use.of_unit * link.per_byte_of_unit);
}

Seconds MachineRates::exchange_seconds(const CollectiveOption& messages) const {
  Seconds slowest;
  for (const LinkUse& use : uses(messages))
    slowest.at_least(split(exchange_seconds(use, messages.turns), rate(use).overlap));
  return slowest;
}

const CollectiveOption& MachineRates::slower_direction(const Movement& exchange) const {
  const auto all = options(exchange);
  return exchange_seconds(all.back()).all > exchange_seconds(all.front()).all ? all.back() : all.front();
}

Seconds MachineRates::seconds(const Movement& movement) const {
  if (terms_.routes[movement.route].verb == Verb::exchange) {
    Seconds most;
    for (const CollectiveOption& direction : options(movement)) most.at_least(exchange_seconds(direction));
    return most;
  }
  const Choice best = cheapest(movement);
  const Curve* const measured = this->measured(movement);
  const double once = measured != nullptr ? measured->seconds(movement.bytes / movement.messages) : best.seconds;
  return split(movement.messages * once, overlap(*best.option));
}

double MachineRates::share(const KernelTerm& kernel) const {
  const auto& [peak, reached, width] = kernels_[static_cast<std::size_t>(kernel.kind)];
  const double share = reached == nullptr ? 1 : reached->at(kernel.flops);
  return kernel.narrowest < width ? share * (kernel.narrowest / width) : share;
}

double MachineRates::seconds(const KernelTerm& kernel, double bytes) const {
  const double peak = kernels_[static_cast<std::size_t>(kernel.kind)].peak;
  return machine_.kernel.value + std::max(kernel.flops / (peak * share(kernel)), bytes / memory_);
}

LayerCost MachineRates::layer(const RankTerms& of) const {
  const KernelTerm& kernel = of.kernel;
  LayerCost cost;
  cost.rank = of.rank;
  cost.measured = kernel.measured;
  const double forward = kernel.measured ? 0 : seconds(kernel, kernel.bytes);
  const double backward =
      kernel.measured || kernel.backward_bytes == kernel.bytes ? forward : seconds(kernel, kernel.backward_bytes);
  for (const Pass pass : microbatch_passes) {
    cost_of(cost, pass).rank = of.rank;
    cost_of(cost, pass).compute =
        kernel.measured
            ? kernel.seconds[pass]
            : kernel.forwards[pass] * forward + kernel.backwards[pass] * backward + kernel.added[pass] / memory_;
  }
  each_movement(of, cost, [&](const LayerMovement& each, const Seconds& taken, double hidden) {
    if (each.hidden_by) cost_of(cost, pass_of(*each.hidden_by)).hidden += hidden;
    cost_of(cost, each.pass).*each.part += taken.all - hidden;
    if (each.input) cost.inputs += taken.all;
  });
  return cost;
}

/// All ranks wait in each pass for the one that takes longest. While sums travel, a rank goes on with its computing c,
/// but not with its communication n. On the slowest ranks both take max(c + n, sums + n), so that the sums can hide
/// behind the largest c + n less the largest n.
LayerCost MachineRates::layer(const std::vector<RankTerms>& ranks) const {
  LayerCost most = layer(ranks.front());
  PassNumbers communication;
  for (const Pass pass : microbatch_passes)
    communication[pass] = cost_of(most, pass).communication() + cost_of(most, pass).hidden;
  double slowest = total(most);
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    const LayerCost cost = layer(ranks[i]);
    for (const Pass pass : microbatch_passes) {
      const PassCost& mine = cost_of(cost, pass);
      if (mine.total() > cost_of(most, pass).total()) cost_of(most, pass) = mine;
      communication[pass] = std::max(communication[pass], mine.communication() + mine.hidden);
    }
    if (total(cost) <= slowest) continue;
    slowest = total(cost);
    most.rank = cost.rank;
    most.inputs = cost.inputs;
  }
  for (const Pass pass : microbatch_passes) {
    PassCost& of_pass = cost_of(most, pass);
    of_pass.room = std::max(0.0, of_pass.total() - communication[pass]);
  }
  return most;
}

Seconds MachineRates::seconds(const std::vector<Movement>& movements) const {
  Seconds sum;
  for (const Movement& each : movements) sum += seconds(each);
  return sum;
}

GradReduceCost MachineRates::grad_reduce(const std::vector<GradReduceTerms>& ranks) const {
  Seconds sums;
  GradReduceCost most;
  for (const GradReduceTerms& rank : ranks) {
    sums.at_least(seconds(rank.sums));
    most.replicas = std::max(most.replicas, seconds(rank.replicas).all);
    most.after = std::max(most.after, seconds(rank.after).all);
    most.loss = std::max(most.loss, seconds(rank.loss).all);
  }
  most.seconds = sums.all;
  most.overlap = sums.overlap();
  return most;
}

double MachineRates::update(const UpdateTerms& terms) const { return terms.bytes / memory_ + terms.seconds; }

/// The part that overlaps and the part that does not are the longest of their kind, so that no link that becomes faster
/// makes either longer.
StageTransfer MachineRates::transfer(const std::vector<Movement>& ranks) const {
  double exposed = 0, hidden = 0, latency = 0;
  int level = 0;
  for (const Movement& each : ranks) {
    level = std::max(level, terms_.routes[each.route].level);
    for (const CollectiveOption& messages : options(each)) {
      for (const LinkUse& use : uses(messages)) {
        const double seconds = exchange_seconds(use, messages.turns);
        exposed = std::max(exposed, seconds * (1 - rate(use).overlap));
        hidden = std::max(hidden, seconds * rate(use).overlap);
        if (rate(use).measured == nullptr) latency = std::max(latency, rate(use).latency);
      }
    }
  }
  const double seconds = exposed + hidden;
  return {seconds, seconds > 0 ? hidden / seconds : 0, std::min(latency, seconds), level};
}

}  // namespace partita
