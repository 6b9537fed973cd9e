#include "partita/strategies/cost/estimate.hpp"
#include "partita/strategies/cost/cost_formula.hpp"

#include <algorithm>
#include <utility>

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

namespace {

/// Returns the first, a middle and the last rank along each axis. `middle` gives the coordinate on an axis.
template <class Middle>
std::vector<int> representatives_with(const Grid& grid, Middle&& middle) {
  std::vector<int> ranks{0};
  for (int axis = 0; axis < grid.axes(); ++axis) {
    const int extent = grid.extent(axis);
    std::vector<int> coordinates{0};
    if (extent > 2) coordinates.push_back(middle(axis));
    if (extent > 1) coordinates.push_back(extent - 1);
    std::vector<int> next;
    for (const int rank : ranks)
      for (const int at : coordinates) next.push_back(rank + at * grid.stride(axis));
    ranks = std::move(next);
  }
  return ranks;
}

}  // namespace

std::vector<int> representatives(const Grid& grid) {
  return representatives_with(grid, [&](int axis) { return grid.extent(axis) / 2; });
}

std::vector<int> representatives(const Grid& grid, const Machine& machine) {
  return representatives_with(grid, [&](int axis) { return middle_coordinate(grid, machine, axis); });
}

int middle_coordinate(const Grid& grid, const Machine& machine, int axis) {
  const int extent = grid.extent(axis), middle = extent / 2;
  const auto rank = [&](int at) { return grid.first_rank() + at * grid.stride(axis); };
  const auto crosses = [&](int at) {
    return std::max(machine.level_of(rank(at - 1), rank(at)), machine.level_of(rank(at), rank(at + 1)));
  };
  int best = middle;
  for (int away = 1; away < extent; ++away)
    for (const int at : {middle - away, middle + away})
      if (at >= 1 && at <= extent - 2 && crosses(at) > crosses(best)) best = at;
  return best;
}

}  // namespace partita
