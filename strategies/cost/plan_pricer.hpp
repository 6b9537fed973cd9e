#pragma once

#include "partita/strategies/cost/cost_formula.hpp"
#include "strategies/cost/known_layer_costs.hpp"
#include "strategies/cost/known_orders.hpp"

namespace partita {

/// What the plan of a step does after its microbatches.
struct StepEndCosts {
  std::vector<GradReduceCost> sums;  ///< by layer: the gradient sums that it completes
  std::vector<double> updates;       ///< by group: seconds of the optimizer's update
};

/// Prices the plans of one model and workload on one machine, one after the other, as estimate() does. Layers that
/// several plans have in common are priced once.
class PlanPricer {
 public:
  /// @pre Both arguments outlive it.
  PlanPricer(const Machine& machine, const KernelTimes& times)
      : machine_(machine), times_(times), known_(machine, times) {}

  StepCost step(const Plan& plan);
  /// Returns what a step costs at least, in less time: of pieces not priced yet, only few ranks are examined.
  StepCost step_at_least(const Plan& plan);
  Cost cost(const Plan& plan);
  /// The same without Cost::memory, Cost::traffic and Cost::sent, in less time.
  Cost simulated(const Plan& plan);
  /// Returns what a layer of the first replica costs for a microbatch of the larger size. `split`: the backward pass is
  /// split into two halves.
  LayerCost layer(const Plan& plan, int index, bool split);

  /// Returns what the ends of a step cost; zeros if the plan does not train.
  /// @pre The plan has one replica.
  StepEndCosts step_ends(const Plan& plan);

  const Machine& machine() const { return machine_; }
  const KernelTimes& times() const { return times_; }

 private:
  CostFormula formula(const Plan& plan, Examined examined = Examined::representatives);

  const Machine& machine_;
  const KernelTimes& times_;
  KnownLayerCosts known_;
  KnownOrders orders_;
};

}  // namespace partita
