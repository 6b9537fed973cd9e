// Seconds of terms, with a machine's constants:
//
//     a kernel       = launch + max(operations / (peak * share of it that is reached), bytes / memory bandwidth)
//     a message      = latency + bytes / (bandwidth * width * min(1, links / fan-out / ranks that share them))
//     a collective   = its messages by the cheapest way to run it, one after the other, or the longest of those that
//                      travel together + 3 memory accesses for each byte that it adds
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

Seconds split(double seconds, double overlap) { return {seconds * (1 - overlap), seconds * overlap}; }

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
    links_.push_back({level.latency.value, seconds_per_byte(level, link), level.overlap.value,
                      found == level.verbs.end() ? nullptr : &found->second});
  }
}

double MachineRates::seconds(const CollectiveOption& option) const {
  double sum = 0, slowest = 0;
  for (const LinkUse& use : uses(option)) {
    sum += seconds(use);
    slowest = std::max(slowest, seconds(use));
  }
  return (option.together ? slowest : sum) + combining_seconds(option.combined);
}

const CollectiveOption& MachineRates::option(const Movement& movement, int number) const {
  int slowest = 0;
  for (int kind = 1; kind < movement.kinds; ++kind)
    if (seconds(of_kind(movement, kind, number)) > seconds(of_kind(movement, slowest, number))) slowest = kind;
  return of_kind(movement, slowest, number);
}

std::vector<LinkUse> MachineRates::waited_for(const Movement& movement, int number) const {
  const auto first = uses(of_kind(movement, 0, number));
  std::vector<LinkUse> slowest(first.begin(), first.end());
  for (int kind = 1; kind < movement.kinds; ++kind) {
    const auto other = uses(of_kind(movement, kind, number));
    for (std::size_t round = 0; round < slowest.size(); ++round)
      if (seconds(other[round]) > seconds(slowest[round])) slowest[round] = other[round];
  }
  return slowest;
}

double MachineRates::seconds(const Movement& movement, int number) const {
  const CollectiveOption& first = of_kind(movement, 0, number);
  if (movement.kinds == 1) return seconds(first);
  double sum = 0, slowest = 0, combined = 0;
  for (const LinkUse& use : waited_for(movement, number)) {
    sum += seconds(use);
    slowest = std::max(slowest, seconds(use));
  }
  for (int kind = 0; kind < movement.kinds; ++kind)
    combined = std::max(combined, of_kind(movement, kind, number).combined);
  return (first.together ? slowest : sum) + combining_seconds(combined);
}

/// Levels that are busy at the same time keep the rank from computing as long as the one that does so longest.
double MachineRates::overlap(const Movement& movement, int number) const {
  const CollectiveOption& first = of_kind(movement, 0, number);
  if (movement.kinds == 1 && first.end - first.first == 1) return rate(uses(first).front()).overlap;
  Seconds sum, slowest;
  const auto add = [&](std::span<const LinkUse> all) {
    for (const LinkUse& use : all) {
      sum += split(seconds(use), rate(use).overlap);
      slowest.exposed = std::max(slowest.exposed, seconds(use) * (1 - rate(use).overlap));
      slowest.hidden = std::max(slowest.hidden, seconds(use));
    }
  };
  movement.kinds == 1 ? add(uses(first)) : add(waited_for(movement, number));
  if (!first.together) return sum.overlap();
  return slowest.hidden > 0 ? 1 - slowest.exposed / slowest.hidden : 0;
}

MachineRates::Choice MachineRates::cheapest(const Movement& movement) const {
  Choice best{0, seconds(movement, 0)};  // the first one is flat
  for (int number = 1; number < options(movement); ++number)
    if (const double seconds = this->seconds(movement, number);
        seconds < best.seconds && machine_.collectives.has(of_kind(movement, 0, number).levels))
      best = {number, seconds};
  return best;
}

double MachineRates::exchange_seconds(const LinkUse& use, double turns) const {
  const LinkRate& link = rate(use);
  if (link.measured != nullptr) return use.rounds * link.measured->seconds(use.bytes / use.rounds);
  return std::min(use.rounds, turns) * link.latency + use.bytes * link.per_byte;
}

Seconds MachineRates::exchange_seconds(const CollectiveOption& messages) const {
  Seconds sum;
  for (const LinkUse& use : uses(messages)) sum += split(exchange_seconds(use, messages.turns), rate(use).overlap);
  return sum;
}

const CollectiveOption& MachineRates::slower_direction(const Movement& exchange) const {
  const CollectiveOption &first = of_kind(exchange, 0, 0), &last = of_kind(exchange, exchange.kinds - 1, 0);
  return exchange_seconds(last).total() > exchange_seconds(first).total() ? last : first;
}

Seconds MachineRates::seconds(const Movement& movement) const {
  if (terms_.routes[movement.route].verb == Verb::exchange) {
    Seconds most;
    for (int kind = 0; kind < movement.kinds; ++kind) most.at_least(exchange_seconds(of_kind(movement, kind, 0)));
    return most;
  }
  const Choice best = cheapest(movement);
  const Curve* const measured = this->measured(movement);
  const double once = measured != nullptr ? measured->seconds(movement.bytes / movement.messages) : best.seconds;
  return split(movement.messages * once, overlap(movement, best.number));
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
  for (const Pass pass : microbatch_passes)
    cost_of(cost, pass).compute =
        kernel.measured
            ? kernel.seconds[pass]
            : kernel.forwards[pass] * forward + kernel.backwards[pass] * backward + kernel.added[pass] / memory_;
  const double recomputed = kernel.recomputes ? cost.forward.compute : 0;
  // seconds of each Computation that hide nothing yet
  std::array<double, 4> unused{cost.forward.compute, cost.backward_data.compute - recomputed,
                               cost.backward_filter.compute, recomputed};
  for (const LayerMovement& each : of.movements) {
    const Seconds taken = seconds(each.movement);
    double hidden = 0;
    if (each.hidden_by) {
      double& room = unused[static_cast<std::size_t>(*each.hidden_by)];
      hidden = std::min(taken.hidden, room);
      room -= hidden;
      cost_of(cost, pass_of(*each.hidden_by)).hidden += hidden;
    }
    cost_of(cost, each.pass).*each.part += taken.total() - hidden;
    if (each.input) cost.inputs += taken.total();
  }
  return cost;
}

/// While sums travel, a rank goes on with its computing c, but not with its communication n. On the slowest ranks both
/// take max(c + n, sums + n), so that the sums can hide behind the largest c + n less the largest n.
LayerCost MachineRates::layer(const std::vector<RankTerms>& ranks) const {
  LayerCost most = layer(ranks.front());
  PassNumbers communication{};
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const LayerCost cost = i == 0 ? most : layer(ranks[i]);
    if (total(cost) > total(most)) most = cost;
    for (const Pass pass : microbatch_passes)
      communication[pass] =
          std::max(communication[pass], cost_of(cost, pass).communication() + cost_of(cost, pass).hidden);
  }
  for (const Pass pass : microbatch_passes)
    cost_of(most, pass).room = std::max(0.0, cost_of(most, pass).total() - communication[pass]);
  return most;
}

GradReduceCost MachineRates::grad_reduce(const std::vector<GradReduceTerms>& ranks) const {
  Seconds sums;
  GradReduceCost most;
  for (const GradReduceTerms& rank : ranks) {
    Seconds mine;
    double replicas = 0, after = 0;
    for (const Movement& each : rank.sums) mine += seconds(each);
    for (const Movement& each : rank.replicas) replicas += seconds(each).total();
    for (const Movement& each : rank.after) after += seconds(each).total();
    sums.at_least(mine);
    most.replicas = std::max(most.replicas, replicas);
    most.after = std::max(most.after, after);
  }
  most.seconds = sums.total();
  most.overlap = sums.overlap();
  return most;
}

double MachineRates::update(const UpdateTerms& terms) const { return std::max(terms.bytes / memory_, terms.seconds); }

StageTransfer MachineRates::transfer(const std::vector<Movement>& ranks) const {
  Seconds most;
  for (const Movement& each : ranks) most.at_least(seconds(each));
  return {most.total(), most.overlap()};
}

}  // namespace partita
