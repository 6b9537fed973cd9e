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
  return most > 0 ? 1 / (most * std::min(1.0, busy / link.sharing)) : never;
}

/// Seconds that can overlap with computation, and those that cannot. The slowest ranks of both kinds count, which may
/// be two: if one rank stood for both, a faster link could make another one stand for them, with more to wait for.
struct Seconds {
  double exposed = 0, hidden = 0;
  void add(double seconds, double overlap) {
    exposed += seconds * (1 - overlap);
    hidden += seconds * overlap;
  }
  void at_least(const Seconds& other) {
    exposed = std::max(exposed, other.exposed);
    hidden = std::max(hidden, other.hidden);
  }
  double total() const { return exposed + hidden; }
  double overlap() const { return total() > 0 ? hidden / total() : 0; }
};

double total(const LayerCost& cost) {
  return cost.forward.total() + cost.backward_data.total() + cost.backward_filter.total();
}

}  // namespace

MachineRates::MachineRates(const CostTerms& terms, const Machine& machine)
    : terms_(terms), machine_(machine), gamma_(3 / machine.memory_bandwidth.value) {
  for (const KernelKind kind : {KernelKind::others, KernelKind::conv, KernelKind::product}) {
    const Efficiency* const efficiency = machine.find_efficiency(kind);
    kernels_[static_cast<std::size_t>(kind)] = {machine.peak(kind, terms.dtype).value, machine.share(kind, terms.dtype),
                                                efficiency == nullptr ? 0 : efficiency->width.value};
  }
  ways_.reserve(terms.routes.size());
  for (const Route& route : terms.routes) {
    const Level& level = machine.levels[static_cast<std::size_t>(route.level)];
    const auto found = level.verbs.find({route.verb, route.ranks, route.inside});
    ways_.push_back({level.overlap.value, found == level.verbs.end() ? nullptr : &found->second});
  }
  links_.reserve(terms.links.size());
  for (const Link& link : terms.links) {
    const Level& level = machine.levels[static_cast<std::size_t>(link.level)];
    const auto found = level.verbs.find({Verb::exchange, 2, 1});
    links_.push_back(
        {level.latency.value, seconds_per_byte(level, link), found == level.verbs.end() ? nullptr : &found->second});
  }
}

double MachineRates::seconds(const CollectiveOption& option) const {
  double sum = 0, slowest = 0;
  for (const LinkUse& use : uses(option)) {
    const double seconds = use.rounds * rate(use).latency + use.bytes * rate(use).per_byte;
    sum += seconds;
    slowest = std::max(slowest, seconds);
  }
  return (option.together ? slowest : sum) + combining_seconds(option.combined);
}

const CollectiveOption& MachineRates::cheapest(const Movement& movement) const {
  const CollectiveOption* best = nullptr;
  double least = 0;
  for (const CollectiveOption& each : options(movement))
    if (const double seconds = this->seconds(each);
        best == nullptr || (seconds < least && machine_.collectives.has(each.levels))) {  // the first one is flat
      least = seconds;
      best = &each;
    }
  return *best;
}

double MachineRates::exchange_seconds(const LinkUse& use, double turns) const {
  const LinkRate& link = rate(use);
  if (link.measured != nullptr) return use.rounds * link.measured->seconds(use.bytes / use.rounds);
  return std::min(use.rounds, turns) * link.latency + use.bytes * link.per_byte;
}

double MachineRates::seconds(const Movement& movement) const {
  if (terms_.routes[static_cast<std::size_t>(movement.route)].verb == Verb::exchange) {
    const CollectiveOption& messages = options(movement).front();
    double sum = 0;
    for (const LinkUse& use : uses(messages)) sum += exchange_seconds(use, messages.turns);
    return sum;
  }
  const Way& way = this->way(movement);
  if (way.measured != nullptr) return movement.messages * way.measured->seconds(movement.bytes / movement.messages);
  return movement.messages * seconds(cheapest(movement));
}

double MachineRates::share(const KernelTerm& kernel) const {
  const auto& [peak, reached, width] = kernels_[static_cast<std::size_t>(kernel.kind)];
  const double share = reached == nullptr ? 1 : reached->at(kernel.flops);
  return kernel.narrowest < width ? share * (kernel.narrowest / width) : share;
}

double MachineRates::seconds(const KernelTerm& kernel, double bytes) const {
  const double peak = kernels_[static_cast<std::size_t>(kernel.kind)].peak;
  return machine_.kernel.value +
         std::max(kernel.flops / (peak * share(kernel)), bytes / machine_.memory_bandwidth.value);
}

LayerCost MachineRates::layer(const RankTerms& of) const {
  LayerCost cost;
  cost.rank = of.rank;
  cost.measured = of.kernel.measured;
  const std::array<PassCost*, 3> passes{&cost.forward, &cost.backward_data, &cost.backward_filter};
  for (std::size_t pass = 0; pass < passes.size() && of.kernel.measured; ++pass)
    passes[pass]->compute = of.kernel.seconds[pass];
  if (!of.kernel.measured) {
    const double forward = seconds(of.kernel, of.kernel.bytes);
    const double backward =
        of.kernel.backward_bytes == of.kernel.bytes ? forward : seconds(of.kernel, of.kernel.backward_bytes);
    for (std::size_t pass = 0; pass < passes.size(); ++pass)
      passes[pass]->compute = of.kernel.forwards[pass] * forward + of.kernel.backwards[pass] * backward;
  }
  const double recomputed = of.kernel.recomputes ? cost.forward.compute : 0;
  // seconds of computation that hide nothing yet
  std::array<double, 4> unused{cost.forward.compute, cost.backward_data.compute - recomputed,
                               cost.backward_filter.compute, recomputed};
  for (const LayerMovement& each : of.movements) {
    PassCost& pass = *passes[each.pass];
    const double taken = seconds(each.movement);
    double hidden = 0;
    if (each.hidden_by >= 0) {
      double& room = unused[static_cast<std::size_t>(each.hidden_by)];
      hidden = std::min(taken * way(each.movement).overlap, room);
      room -= hidden;
      passes[static_cast<std::size_t>(each.hidden_by == recomputed_forward ? 1 : each.hidden_by)]->hidden += hidden;
    }
    pass.*each.part += taken - hidden;
    if (each.input) cost.inputs += taken;
  }
  return cost;
}

LayerCost MachineRates::layer(const std::vector<RankTerms>& ranks) const {
  LayerCost most = layer(ranks.front());
  for (std::size_t i = 1; i < ranks.size(); ++i)
    if (const LayerCost cost = layer(ranks[i]); total(cost) > total(most)) most = cost;
  return most;
}

GradReduceCost MachineRates::grad_reduce(const std::vector<GradReduceTerms>& ranks) const {
  Seconds sums;
  GradReduceCost most;
  for (const GradReduceTerms& rank : ranks) {
    Seconds mine;
    double replicas = 0, after = 0;
    for (const Movement& each : rank.sums) mine.add(seconds(each), way(each).overlap);
    for (const Movement& each : rank.replicas) replicas += seconds(each);
    for (const Movement& each : rank.after) after += seconds(each);
    sums.at_least(mine);
    most.replicas = std::max(most.replicas, replicas);
    most.after = std::max(most.after, after);
  }
  most.seconds = sums.total();
  most.overlap = sums.overlap();
  return most;
}

double MachineRates::update(const UpdateTerms& terms) const {
  return std::max(terms.bytes / machine_.memory_bandwidth.value, terms.seconds);
}

StageTransfer MachineRates::transfer(const std::vector<Movement>& ranks) const {
  Seconds most;
  for (const Movement& each : ranks) {
    Seconds mine;
    mine.add(seconds(each), way(each).overlap);
    most.at_least(mine);
  }
  return {most.total(), most.overlap()};
}

}  // namespace partita
