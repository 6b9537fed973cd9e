#include "strategies/cost/collective_spans.hpp"

#include "partita/strategies/cost/estimate.hpp"
#include "strategies/cost/representatives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace partita {

namespace {

/// Returns how many ranks a unit of the level holds.
int unit_of(const Machine& machine, int level) { return static_cast<int>(machine.levels[level].ranks.value); }

}  // namespace

/// Returns the world ranks of the collective that `rank` takes part in. `inside` counts those in the rank's unit of the
/// level below `level`.
CollectiveSpans::Group CollectiveSpans::group(const PlannedTraffic& item, const Grid& grid, int rank, int level) const {
  const int world_rank = grid.first_rank() + rank;
  const int unit = level > 0 ? unit_of(machine_, level - 1) : 1;
  const int lo = world_rank / unit * unit, end = lo + unit;
  if (item.axes != 0) {
    Group group{grid.first_rank() + representative_rank(grid, rank, item.axes), 0, grid.group_size(item.axes), 1};
    group.last = group.first;
    for (int a = 0; a < grid.axes(); ++a)
      if ((item.axes >> a & 1U) != 0) group.last += (grid.extent(a) - 1) * grid.stride(a);
    if (level > 0) group.inside = count_inside(grid, item.axes, 0, group.first, lo, end);
    return group;
  }
  if (const auto other = other_rank(plan_, item, world_rank)) {
    const auto [first, last] = std::minmax({world_rank, *other});
    return {first, last, 2, first >= lo && last < end ? 2 : 1};
  }
  return {0, plan_.ranks() - 1, plan_.ranks(), std::min(end, plan_.ranks()) - lo};
}

/// Returns the links that the ranks of a collective can use which share the innermost unit with a rank.
int CollectiveSpans::width(const PlannedTraffic& item, const Grid& grid, int rank) {
  const PairLinks& pairs = machine_.levels.front().pairs;
  if (pairs.empty()) return 1;
  const bool two = item.axes == 0 && other_rank(plan_, item, grid.first_rank() + rank).has_value();
  const Group ends = two ? group(item, grid, rank, 0) : Group{};
  const std::vector<int> all = two ? std::vector{ends.first, ends.last} : members(item, grid, rank);
  const auto [known, added] = widths_.try_emplace(pairs.places(all, grid.first_rank() + rank), 0);
  if (added) known->second = pairs.width(known->first);
  return known->second;
}

/// Returns where a collective's ranks lie, by level from the inside out. Levels at which it has a single unit are left
/// out. The other collectives of the kind lie alike: as many of them share a unit as its ranks allow.
const std::vector<Span>& CollectiveSpans::even(const PlannedTraffic& item, const Grid& grid, int rank) {
  const Group whole = group(item, grid, rank, 0);
  const int top = machine_.level_of(whole.first, whole.last), world_rank = grid.first_rank() + rank;
  even_.clear();
  int inside = 1;
  double groups = 1;
  for (int level = 0; level <= top; ++level) {
    const int ranks = level == top ? whole.ranks : group(item, grid, rank, level + 1).inside;
    if (ranks > inside) even_.push_back({level, ranks, inside, groups, level == 0 ? width(item, grid, rank) : 1});
    if (level == top) break;
    const int unit = unit_of(machine_, level), first = world_rank / unit * unit;
    const int there = std::min(first + unit, grid.first_rank() + grid.size()) - std::max(first, grid.first_rank());
    inside = ranks;
    groups = std::max(1.0, static_cast<double>(there) / inside);
  }
  return even_;
}

/// Returns the world ranks of the collective that `rank` takes part in, in ascending order.
std::vector<int> CollectiveSpans::members(const PlannedTraffic& item, const Grid& grid, int rank) const {
  std::vector<int> all;
  if (item.axes != 0) {
    all = grid.group(rank, item.axes);
    for (int& each : all) each += grid.first_rank();
  } else {
    all.resize(static_cast<std::size_t>(plan_.ranks()));
    std::iota(all.begin(), all.end(), 0);
  }
  return all;
}

/// True if units of the machine may hold different numbers of the ranks of a collective.
bool CollectiveSpans::is_uneven(const PlannedTraffic& item, const Grid& grid) {
  if (item.axes == 0 && other_rank(plan_, item, grid.first_rank())) return false;
  const auto [known, added] = straddles_.try_emplace(&grid, false);
  if (added) known->second = straddles(grid, machine_);
  if (item.axes != 0) return known->second;
  return std::any_of(machine_.levels.begin(), machine_.levels.end(), [&](const Level& level) {
    const auto unit = static_cast<int>(level.ranks.value);
    return unit > 0 && plan_.ranks() > unit && plan_.ranks() % unit != 0;
  });
}

CountedCollectives& CollectiveSpans::counted(const PlannedTraffic& item, const Grid& grid) {
  const bool all = item.axes == 0;
  auto& known = counted_[{all ? nullptr : &grid, item.axes, item.verb}];
  if (!known) {
    const Grid whole = all ? Grid::parse(fmt::format("all={}", plan_.ranks())) : grid;
    known = CountedCollectives::find(machine_, whole, all ? whole.all() : item.axes, item.verb);
  }
  return *known;
}

}  // namespace partita
