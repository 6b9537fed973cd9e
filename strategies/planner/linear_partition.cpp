#include "strategies/planner/linear_partition.hpp"

#include <algorithm>
#include <numeric>

namespace partita {

Segments minimize_max_segment(const std::vector<double>& costs, int parts) {
  const double all = std::accumulate(costs.begin(), costs.end(), 0.0);
  double low = std::max(all / parts, *std::max_element(costs.begin(), costs.end())), high = all;
  const auto cut = [&](double most) {
    Segments found{{}, most};
    double sum = 0;
    for (std::size_t i = 0; i < costs.size(); ++i) {
      if (sum + costs[i] > most) {
        found.begins.push_back(i);
        sum = 0;
      }
      sum += costs[i];
    }
    return found;
  };
  const auto fits = [&](double most) { return static_cast<int>(cut(most).begins.size()) < parts; };
  if (fits(low)) high = low;
  // relative tolerance, much finer than the accuracy of cost estimates; each bisection takes one more pass
  constexpr double near = 1e-3;
  while (high - low > near * low) {
    const double middle = (low + high) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return cut(high);
}

}  // namespace partita
