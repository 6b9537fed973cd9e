#include "strategies/cost/evaluate_terms.hpp"
#include "strategies/cost/cost_terms.hpp"

#include <algorithm>

namespace partita {

namespace {

/// Returns the bandwidth of one rank in bytes per second if `sharing` ranks use the links of a unit at the same time.
/// An oversubscribed network limits how many of the links can be busy at once, not how fast one of them is.
double bandwidth(const Level& level, double sharing) {
  const double busy = level.links.value / level.fan_out.value;
  return level.bandwidth.value * std::min(1.0, busy / sharing);
}

const Curve* curve(const Machine& machine, KernelKind kind) {
  auto found = machine.efficiency.find(kind);
  if (found == machine.efficiency.end()) found = machine.efficiency.find(KernelKind::others);
  return found == machine.efficiency.end() ? nullptr : &found->second;
}

double total(const LayerCost& cost) {
  return cost.forward.total() + cost.backward_data.total() + cost.backward_filter.total();
}

}  // namespace

MachineRates::MachineRates(const CostTerms& terms, const Machine& machine)
    : terms_(terms),
      machine_(machine),
      gamma_(3 / machine.memory_bandwidth.value),
      kernels_{curve(machine, KernelKind::others), curve(machine, KernelKind::conv),
               curve(machine, KernelKind::product)} {
  ways_.reserve(terms.routes.size());
  for (const Route& route : terms.routes) {
    const Level& level = machine.levels[static_cast<std::size_t>(route.level)];
    const auto found = level.verbs.find({route.verb, route.ranks});
    ways_.push_back({level.latency.value, bandwidth(level, route.sharing), level.overlap.value,
                     found == level.verbs.end() ? nullptr : &found->second});
  }
}

const CollectiveOption& MachineRates::cheapest(const Movement& movement) const {
  const Way& way = this->way(movement);
  const Verb verb = terms_.routes[static_cast<std::size_t>(movement.route)].verb;
  const CollectiveOption* best = &terms_.options[static_cast<std::size_t>(movement.options)];
  const CollectiveOption* const end = best + algorithms(verb).size();
  const double beta = 1 / way.bandwidth;
  double least = best->cost.seconds(way.latency, beta, gamma_);
  for (const CollectiveOption* each = best + 1; each != end; ++each)
    if (const double seconds = each->cost.seconds(way.latency, beta, gamma_); seconds < least) {
      least = seconds;
      best = each;
    }
  return *best;
}

double MachineRates::seconds(const Movement& movement) const {
  const Way& way = this->way(movement);
  if (way.measured != nullptr) return movement.messages * way.measured->seconds(movement.bytes / movement.messages);
  if (terms_.routes[static_cast<std::size_t>(movement.route)].verb == Verb::exchange)
    return movement.messages * way.latency + movement.bytes / way.bandwidth;
  return movement.messages * cheapest(movement).cost.seconds(way.latency, 1 / way.bandwidth, gamma_);
}

double MachineRates::share(const KernelTerm& kernel) const {
  const Curve* reached = kernels_[static_cast<std::size_t>(kernel.kind)];
  return reached == nullptr ? 1 : reached->at(kernel.flops);
}

double MachineRates::seconds(const KernelTerm& kernel) const {
  return machine_.kernel.value + std::max(kernel.flops / (machine_.arithmetic.value * share(kernel)),
                                          kernel.bytes / machine_.memory_bandwidth.value);
}

LayerCost MachineRates::layer(const RankTerms& of) const {
  LayerCost cost;
  cost.rank = of.rank;
  cost.measured = of.kernel.measured;
  const std::array<PassCost*, 3> passes{&cost.forward, &cost.backward_data, &cost.backward_filter};
  const double once = of.kernel.measured ? 0 : seconds(of.kernel);
  for (std::size_t pass = 0; pass < passes.size(); ++pass)
    passes[pass]->compute = of.kernel.measured ? of.kernel.seconds[pass] : of.kernel.calls[pass] * once;
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
  GradReduceCost most;
  for (const GradReduceTerms& rank : ranks) {
    GradReduceCost cost;
    double overlapped = 0;
    for (const Movement& each : rank.sums) {
      const double taken = seconds(each);
      cost.seconds += taken;
      overlapped += taken * way(each).overlap;
    }
    for (const Movement& each : rank.replicas) cost.replicas += seconds(each);
    for (const Movement& each : rank.after) cost.after += seconds(each);
    if (cost.seconds > 0) cost.overlap = overlapped / cost.seconds;
    if (cost.total() > most.total()) most = cost;
  }
  return most;
}

double MachineRates::update(const UpdateTerms& terms) const {
  return std::max(terms.bytes / machine_.memory_bandwidth.value, terms.seconds);
}

StageTransfer MachineRates::transfer(const std::vector<Movement>& ranks) const {
  StageTransfer most;
  for (const Movement& each : ranks)
    if (const double taken = seconds(each); taken > most.seconds) most = {taken, way(each).overlap};
  return most;
}

}  // namespace partita
