#include "partita/strategies/cost/estimate.hpp"

#include "partita/strategies/cost/cost_formula.hpp"

namespace partita {

PassCost& PassCost::operator+=(const PassCost& other) {
  compute += other.compute;
  halo += other.halo;
  redistribution += other.redistribution;
  product += other.product;
  collective += other.collective;
  hidden += other.hidden;
  room += other.room;
  return *this;
}

PassCost PassCost::operator*(double factor) const {
  return {compute * factor,    halo * factor,   redistribution * factor, product * factor,
          collective * factor, hidden * factor, room * factor,           rank};
}

Cost estimate(const Plan& plan, const Machine& machine, const KernelTimes& times) {
  return CostFormula(plan, machine, times).cost(machine);
}

}  // namespace partita
