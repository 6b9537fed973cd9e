#include "strategies/cost/unit_traffic.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace partita {

namespace {

/// The ranks [lo, end) of the world in a unit, and those [first, last) of them that belong to a grid.
struct Unit {
  Unit(const Machine& machine, const Grid& grid, int rank, int level) {
    const auto ranks = static_cast<int>(machine.levels[level - 1].ranks.value);
    lo = (grid.first_rank() + rank) / ranks * ranks;
    end = lo + ranks;
    first = std::max(lo, grid.first_rank());
    last = std::min(end, grid.first_rank() + grid.size());
  }
  int lo = 0, end = 0, first = 0, last = 0;
};

/// Returns how many ranks of the unit have a peer outside of it that lies, on the grid, in the same direction as the
/// peer at `offset` of `rank`.
int crossing(const Grid& grid, const Unit& unit, int rank, int offset) {
  std::array<int, max_axes> steps{};  // from a rank to its peer, by axis
  for (int axis = 0; axis < grid.axes(); ++axis)
    steps[axis] = grid.coordinate(rank + offset, axis) - grid.coordinate(rank, axis);
  const auto has_peer = [&](int other) {
    for (int axis = 0; axis < grid.axes(); ++axis) {
      if (steps[axis] == 0) continue;
      const int to = grid.coordinate(other, axis) + steps[axis];
      if (to < 0 || to >= grid.extent(axis)) return false;
    }
    return true;
  };
  const int ranks = unit.last - unit.first, near = std::min(std::abs(offset), ranks);  // others have theirs inside
  int count = 0;
  for (int i = 0; i < near; ++i)
    count += static_cast<int>(has_peer((offset > 0 ? unit.last - 1 - i : unit.first + i) - grid.first_rank()));
  return count;
}

}  // namespace

double unit_bytes_if_alike(const Machine& machine, const Grid& grid, const std::vector<PeerTraffic>& peers, int rank,
                           int level, Direction direction) {
  const Unit unit(machine, grid, rank, level);
  double sum = 0;
  for (const PeerTraffic& each : peers)
    if (const Index bytes = (each.*direction).bytes; bytes > 0)
      sum += static_cast<double>(bytes) * crossing(grid, unit, rank, each.peer);
  return sum;
}

double UnitTraffic::bytes(int rank, int level, Direction direction) {
  const Unit unit(machine_, grid_, rank, level);
  const auto [known, fresh] = known_.try_emplace({level, unit.lo, direction == &PeerTraffic::sent}, 0);
  if (!fresh) return known->second;
  Index sum = 0;
  for (int member = unit.first; member < unit.last; ++member)
    if (const auto* peers = peers_of_(member - grid_.first_rank()))
      for (const PeerTraffic& each : *peers)
        if (const int peer = member + each.peer; peer < unit.lo || peer >= unit.end) sum += (each.*direction).bytes;
  return known->second = static_cast<double>(sum);
}

}  // namespace partita
