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
  return *this;
}

PassCost PassCost::operator*(double factor) const {
  return {compute * factor, halo * factor,       redistribution * factor,
          product * factor, collective * factor, hidden * factor};
}

Cost estimate(const Plan& plan, const Machine& machine, const KernelTimes& times) {
  return CostFormula(plan, machine, times).cost(machine);
}

std::vector<int> representatives(const Grid& grid) {
  std::vector<int> ranks{0};
  for (int axis = 0; axis < grid.axes(); ++axis) {
    const int extent = grid.extent(axis);
    std::vector<int> coordinates{0};
    if (extent > 2) coordinates.push_back(extent / 2);
    if (extent > 1) coordinates.push_back(extent - 1);
    std::vector<int> next;
    for (const int rank : ranks)
      for (const int at : coordinates) next.push_back(rank + at * grid.stride(axis));
    ranks = std::move(next);
  }
  return ranks;
}

}  // namespace partita
