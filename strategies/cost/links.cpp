#include "strategies/cost/links.hpp"

#include <algorithm>
#include <cstdlib>

namespace partita {

Link links_of_level(const Machine& machine, int level, double concurrent) {
  const double unit = level == 0 ? 1 : machine.levels[level - 1].ranks.value;
  const PairLinks& pairs = machine.levels[level].pairs;
  return {level, std::min(concurrent, unit), false, pairs.narrowest()};
}

Link links_of(const Machine& machine, int from, int to) {
  Link link = links_of_level(machine, machine.level_of(from, to), std::max(1, std::abs(to - from)));
  const PairLinks& pairs = machine.levels[link.level].pairs;
  if (!pairs.empty()) link.width = pairs.width(from % pairs.ranks(), to % pairs.ranks());
  return link;
}

int count_inside(const Grid& grid, AxisSet axes, int axis, int origin, int lo, int end) {
  int all = 1, span = 0;
  for (int a = axis; a < grid.axes(); ++a)
    if ((axes >> a & 1U) != 0) {
      all *= grid.extent(a);
      span += (grid.extent(a) - 1) * grid.stride(a);
    }
  if (origin >= end || origin + span < lo) return 0;
  if (origin >= lo && origin + span < end) return all;
  while ((axes >> axis & 1U) == 0) ++axis;
  int count = 0;
  const int stride = grid.stride(axis), rest = span - (grid.extent(axis) - 1) * stride;
  const int first = std::max(0, (lo - origin - rest) / stride),
            last = std::min(grid.extent(axis) - 1, (end - 1 - origin) / stride);
  for (int i = first; i <= last; ++i)
    count += count_inside(grid, axes, axis + 1, origin + i * grid.stride(axis), lo, end);
  return count;
}

}  // namespace partita
