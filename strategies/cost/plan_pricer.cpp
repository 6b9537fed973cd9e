#include "strategies/cost/plan_pricer.hpp"

namespace partita {

StepCost PlanPricer::step(const Plan& plan) { return formula(plan).step(machine_); }

Cost PlanPricer::cost(const Plan& plan) { return formula(plan).cost(machine_); }

// Measured times hold for the loop in which a plan runs a layer, so other plans may not use them.
CostFormula PlanPricer::formula(const Plan& plan) {
  return {plan, machine_, times_, times_.empty() ? &known_ : nullptr};
}

}  // namespace partita
