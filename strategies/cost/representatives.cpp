#include "strategies/cost/representatives.hpp"

#include <algorithm>
#include <utility>

namespace partita {

namespace {

/// Returns how many coordinates to take along the axes `every`, so that there are at most 256 ranks in all.
int most_coordinates(const Grid& grid, AxisSet every) {
  constexpr double limit = 256;
  for (int most = 64; most > 3; most /= 2) {
    double ranks = 1;
    for (int axis = 0; axis < grid.axes(); ++axis)
      ranks *= std::min(grid.extent(axis), (every >> axis & 1U) != 0 ? most : 3);
    if (ranks <= limit) return most;
  }
  return 3;
}

/// Returns the coordinates of an axis, or `most` of them that are evenly spaced.
std::vector<int> all_coordinates(int extent, int most) {
  const int count = std::min(extent, most);
  std::vector<int> all;
  for (int i = 0; i < count; ++i) all.push_back(count == 1 ? 0 : i * (extent - 1) / (count - 1));
  return all;
}

/// Returns the first, a middle and the last rank along each axis. `middle` gives the coordinate on an axis.
template <class Middle>
std::vector<int> representatives_with(const Grid& grid, AxisSet every, Middle&& middle) {
  std::vector<int> ranks{0};
  const int most = every == 0 ? 0 : most_coordinates(grid, every);
  for (int axis = 0; axis < grid.axes(); ++axis) {
    const int extent = grid.extent(axis);
    std::vector<int> coordinates{0};
    if (extent > 2) coordinates.push_back(middle(axis));
    if (extent > 1) coordinates.push_back(extent - 1);
    if ((every >> axis & 1U) != 0) coordinates = all_coordinates(extent, most);
    std::vector<int> next;
    for (const int rank : ranks)
      for (const int at : coordinates) next.push_back(rank + at * grid.stride(axis));
    ranks = std::move(next);
  }
  return ranks;
}

}  // namespace

bool straddles(const Grid& grid, const Machine& machine) {
  for (const Level& level : machine.levels) {
    const auto unit = static_cast<int>(level.ranks.value);
    const int first = grid.first_rank(), last = first + grid.size() - 1;
    if (unit == 0 || first / unit == last / unit) continue;
    if (first % unit != 0) return true;
    for (int axis = 0; axis < grid.axes(); ++axis)
      if (const int block = grid.stride(axis) * grid.extent(axis); unit % block != 0 && block % unit != 0) return true;
  }
  return false;
}

std::vector<int> representatives(const Grid& grid, AxisSet every) {
  return representatives_with(grid, every, [&](int axis) { return grid.extent(axis) / 2; });
}

std::vector<int> representatives(const Grid& grid, const Machine& machine, AxisSet every) {
  if (straddles(grid, machine)) every = grid.all();
  auto ranks = representatives_with(grid, every, [&](int axis) { return middle_coordinate(grid, machine, axis); });
  if (const PairLinks& pairs = machine.levels.front().pairs; !pairs.empty()) {
    const int in_unit = std::min(grid.size(), pairs.ranks() - grid.first_rank() % pairs.ranks());
    for (int rank = 0; rank < in_unit; ++rank)
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
  }
  return ranks;
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
