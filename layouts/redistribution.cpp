#include "partita/layouts/redistribution.hpp"

#include "partita/base/error.hpp"
#include "partita/layouts/transfer.hpp"

#include <algorithm>
#include <span>

namespace partita {

namespace {

/// True if in each dimension the axes of `coarser` are the first axes of `finer`. `added` are the other axes of
/// `finer`.
bool refines(const Layout& finer, const Layout& coarser, AxisSet& added) {
  added = finer.sharding() & ~coarser.sharding();
  for (int d = 0; d < finer.shape().dims(); ++d) {
    const auto& a = coarser.axes(d);
    const auto& b = finer.axes(d);
    if (a.size() > b.size() || !std::equal(a.begin(), a.end(), b.begin())) return false;
  }
  return true;
}

/// True if `to` appends exactly the axes `sum` to exactly one dimension of `from`.
bool scatters(const Layout& from, const Layout& to, AxisSet sum) {
  AxisSet added = 0;
  if (!refines(to, from, added) || added != sum) return false;
  int changed = 0;
  for (int d = 0; d < to.shape().dims(); ++d) changed += to.axes(d) == from.axes(d) ? 0 : 1;
  return changed == 1;
}

/// Returns the step between two layouts with equal pending sums and different shards.
RedistributionStep move(const Layout& from, const Layout& to) {
  AxisSet axes = 0;
  if (refines(to, from, axes)) return {Verb::none, 0, from, to};
  if (refines(from, to, axes)) return {Verb::all_gather, axes, from, to};
  return {Verb::exchange, from.grid().all(), from, to};
}

}  // namespace

PackedElements packed_elements(const RedistributionStep& step, int rank) {
  return packed_elements(plan_transfer(step.from, step.to, rank), step.from.shape().names(), step.from.owned(rank),
                         step.to.owned(rank));
}

bool blocks_are_runs(const RedistributionStep& step) {
  const Layout &whole = step.verb == Verb::all_gather ? step.to : step.from,
               &blocks = step.verb == Verb::all_gather ? step.from : step.to;
  const int slowest = memory_order(whole.shape().names())[0];
  for (int d = 0; d < whole.shape().dims(); ++d)
    if (d != slowest && !(whole.axes(d) == blocks.axes(d))) return false;
  const AxisList& axes = blocks.axes(slowest);
  return std::is_sorted(axes.begin() + whole.axes(slowest).size(), axes.end());
}

Index packed_blocks(const RedistributionStep& step, int rank) {
  const bool gathers = step.verb == Verb::all_gather;
  if (!gathers && step.verb != Verb::reduce_scatter) return 0;
  if (step.from.grid().group_size(step.axes) == 1 || blocks_are_runs(step)) return 0;
  return (gathers ? step.to : step.from).elements(rank);
}

std::vector<RedistributionStep> plan_redistribution(const Layout& from, const Layout& to) {
  if (from == to) return {};
  require(from.shape() == to.shape() && from.grid() == to.grid(), "a redistribution keeps shape and grid");
  std::vector<RedistributionStep> steps;
  Layout now = from;
  if (const AxisSet sum = from.partial() & ~to.partial(); sum != 0) {
    const Layout summed = from.with_partial(from.partial() & to.partial());
    const bool scatter = summed.partial() == to.partial() && scatters(summed, to, sum);
    steps.push_back({scatter ? Verb::reduce_scatter : Verb::all_reduce, sum, from, scatter ? to : summed});
    now = steps.back().to;
  }
  // From here on `now` has no pending sum that `to` lacks.
  const Layout moved = to.with_partial(now.partial() & ~to.sharding());
  if (!(now == moved)) {
    steps.push_back(move(now, moved));
    now = moved;
  }
  if (!(now == to)) steps.push_back({Verb::none, 0, now, to});
  return steps;
}

Traffic traffic(const RedistributionStep& step, int rank, Index element_size) {
  const auto counted = [&](Index elements) {
    return elements == 0 || step.from.grid().group_size(step.axes) == 1 ? Traffic{}
                                                                        : Traffic{1, elements * element_size};
  };
  switch (step.verb) {
    case Verb::none: return {};
    case Verb::all_reduce:
    case Verb::reduce_scatter: return counted(step.from.elements(rank));
    case Verb::all_gather: return counted(step.to.elements(rank));
    default: break;
  }
  const auto plan = plan_transfer(step.from, step.to, rank);
  return {static_cast<Index>(plan.sends.size()), plan.sent() * element_size};
}

namespace {

/// Returns how many blocks of `range`, cut over `axes` in nested blocks, intersect `part`.
int blocks_that_meet(const Grid& grid, std::span<const std::uint8_t> axes, Interval range, Interval part) {
  if (intersect(range, part).empty()) return 0;
  if (axes.empty()) return 1;
  const int parts = grid.extent(axes.front());
  int count = 0;
  for (int i = 0; i < parts; ++i)
    count += blocks_that_meet(grid, axes.subspan(1), balanced_block(range, parts, i), part);
  return count;
}

}  // namespace

Traffic received(const RedistributionStep& step, int rank, Index element_size) {
  const Box needed = step.to.owned(rank);
  if (needed.empty()) return {};
  Index owners = 1;  // number of distinct blocks: of several replicas only one sends
  for (int d = 0; d < needed.dims(); ++d) {
    const AxisList& axes = step.from.axes(d);
    owners *=
        blocks_that_meet(step.from.grid(), {axes.begin(), axes.end()}, {0, step.from.shape().extent(d)}, needed[d]);
  }
  const Index own = intersect(step.from.owned(rank), needed).volume();
  return {owners - (own > 0 ? 1 : 0), (needed.volume() - own) * element_size};
}

namespace {

/// Returns the box of the rank that is the last along the axes in `last` and the first along all others.
Box corner(const Layout& layout, AxisSet last) {
  Box box(layout.shape());
  for (int d = 0; d < box.dims(); ++d)
    for (const int axis : layout.axes(d)) {
      const int parts = layout.grid().extent(axis);
      box[d] = balanced_block(box[d], parts, (last >> axis & 1U) != 0 ? parts - 1 : 0);
    }
  return box;
}

/// True if all blocks of dimension `d` are equal and the blocks of one layout are parts of those of the other.
bool nests_evenly(const Layout& have, const Layout& need, int d) {
  const auto &a = have.axes(d), &b = need.axes(d);
  const auto &coarse = a.size() < b.size() ? a : b, &fine = a.size() < b.size() ? b : a;
  return std::equal(coarse.begin(), coarse.end(), fine.begin()) &&
         have.shape().extent(d) % have.grid().group_size(have.sharding(d) | need.sharding(d)) == 0;
}

}  // namespace

Index most_missing(const Layout& have, const Layout& need) {
  if (AxisSet further = 0; refines(need, have, further)) return 0;
  const Index whole = corner(need, 0).volume();  // no rank needs more than this
  Index most = 0;
  AxisSet axes = 0;  // along all other axes the missing part is the same
  for (int d = 0; d < need.shape().dims(); ++d)
    if (!nests_evenly(have, need, d)) axes |= have.sharding(d) | need.sharding(d);
  for (AxisSet last = axes;; last = (last - 1) & axes) {  // all subsets of `axes`
    const Box box = corner(need, last);
    most = std::max(most, box.volume() - intersect(corner(have, last), box).volume());
    if (last == 0 || most == whole) return most;
  }
}

double wire_of_all_reduce(double n, int p) { return 2 * n * (p - 1) / p; }

double wire_elements(const RedistributionStep& step, int rank) {
  if (step.verb == Verb::exchange) return static_cast<double>(most_missing(step.from, step.to));
  const auto n = static_cast<double>(traffic(step, rank, 1).bytes);
  const int p = step.from.grid().group_size(step.axes);
  return step.verb == Verb::all_reduce ? wire_of_all_reduce(n, p) : n * (p - 1) / p;
}

std::string print(const std::vector<RedistributionStep>& steps) {
  std::string text;
  for (const auto& step : steps) {
    const std::string axes =
        step.verb == Verb::exchange || step.verb == Verb::none ? "" : step.from.grid().print(step.axes);
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", step.verb == Verb::none ? "slice" : name(step.verb), axes);
  }
  return text;
}

}  // namespace partita
