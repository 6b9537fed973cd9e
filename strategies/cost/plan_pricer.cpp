#include "strategies/cost/plan_pricer.hpp"

#include "strategies/cost/evaluate_terms.hpp"
#include "strategies/cost/piece_cost.hpp"
#include "strategies/cost/plan_terms.hpp"

namespace partita {

StepCost PlanPricer::step(const Plan& plan) { return formula(plan).step(machine_); }

StepCost PlanPricer::step_at_least(const Plan& plan) { return formula(plan, Examined::first_and_inner).step(machine_); }

Cost PlanPricer::cost(const Plan& plan) { return formula(plan).cost(machine_); }
Cost PlanPricer::simulated(const Plan& plan) { return formula(plan).simulated(machine_); }

LayerCost PlanPricer::layer(const Plan& plan, int index, bool split) {
  return times_.empty() ? known_.of(plan, index, false, 0, split, Examined::representatives)
                        : PieceCost(plan, machine_, times_, split).layer(index, false);
}

StepEndCosts PlanPricer::step_ends(const Plan& plan) {
  StepEndCosts ends{std::vector<GradReduceCost>(plan.layers.size()), {}};
  const PlanTerms terms(plan, machine_, times_, times_.empty() ? &known_ : nullptr, Examined::representatives);
  const MachineRates rates(terms.tables, machine_);
  for (const PlanTerms::Group& group : terms.replicas.front().groups) {
    for (const PlanTerms::Layer& layer : group.layers)
      if (layer.sums) ends.sums[layer.index] = rates.grad_reduce(terms.sums[*layer.sums]);
    ends.updates.push_back(rates.update(group.update));
  }
  return ends;
}

// Measured times hold for the loop in which a plan runs a layer, so other plans may not use them.
CostFormula PlanPricer::formula(const Plan& plan, Examined examined) {
  return {plan, machine_, times_, orders_.of(plan), times_.empty() ? &known_ : nullptr, examined};
}

}  // namespace partita
