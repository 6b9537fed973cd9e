#include "strategies/cost/plan_pricer.hpp"

#include "strategies/cost/piece_cost.hpp"

namespace partita {

StepCost PlanPricer::step(const Plan& plan) { return formula(plan).step(machine_); }

StepCost PlanPricer::step_at_least(const Plan& plan) { return formula(plan, Examined::first_and_inner).step(machine_); }

Cost PlanPricer::cost(const Plan& plan) { return formula(plan).cost(machine_); }
Cost PlanPricer::simulated(const Plan& plan) { return formula(plan).simulated(machine_); }

LayerCost PlanPricer::layer(const Plan& plan, int index, bool split) {
  return times_.empty() ? known_.of(plan, index, false, 0, split, Examined::representatives)
                        : PieceCost(plan, machine_, times_, split).layer(index, false);
}

// Measured times hold for the loop in which a plan runs a layer, so other plans may not use them.
CostFormula PlanPricer::formula(const Plan& plan, Examined examined) {
  return {plan, machine_, times_, times_.empty() ? &known_ : nullptr, examined};
}

}  // namespace partita
