#include "partita/layouts/layout.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <numeric>

namespace partita {

Interval balanced_block(Interval range, int parts, int i) {
  const Index size = range.extent() / parts;
  const Index larger = range.extent() % parts;
  const Index lo = range.lo + i * size + std::min<Index>(i, larger);
  return {lo, lo + size + (i < larger ? 1 : 0)};
}

std::vector<Index> balanced_counts(Index total, int parts) {
  std::vector<Index> counts;
  counts.reserve(static_cast<std::size_t>(parts));
  for (int i = 0; i < parts; ++i) counts.push_back(balanced_block({0, total}, parts, i).extent());
  return counts;
}

AxisSet Layout::sharding(int d) const {
  AxisSet set = 0;
  for (const int axis : axes(d)) set |= AxisSet{1} << axis;
  return set;
}

AxisSet Layout::sharding(char dim) const {
  const int d = shape_.find(dim);
  return d < 0 ? 0 : sharding(d);
}

AxisSet Layout::sharding() const {
  AxisSet set = 0;
  for (int d = 0; d < shape_.dims(); ++d) set |= sharding(d);
  return set;
}

Layout Layout::with(int d, const AxisList& axes) const& { return Layout(*this).with(d, axes); }

Layout Layout::with(int d, const AxisList& axes) && {
  AxisSet used = partial_;
  for (int other = 0; other < shape_.dims(); ++other) used |= other == d ? 0 : sharding(other);
  for (const int axis : axes) {
    if ((used >> axis & 1U) != 0) fail("axis '{}' is used twice in the layout {}", grid_.name(axis), print());
    used |= AxisSet{1} << axis;
  }
  axes_[d] = axes;
  return std::move(*this);
}

Layout Layout::with_partial(AxisSet partial) const& { return Layout(*this).with_partial(partial); }

Layout Layout::with_partial(AxisSet partial) && {
  if (partial != 0 && (partial & sharding()) != 0)
    fail("axes {} cannot both shard a dimension and be a pending sum in the layout {}",
         grid_.print(partial & sharding()), print());
  partial_ = partial;
  return std::move(*this);
}

Layout Layout::onto(const Shape& shape) const {
  Layout layout(shape, grid_);
  for (int d = 0; d < shape.dims(); ++d)
    if (const int mine = shape_.find(shape.name(d)); mine >= 0) layout.axes_[d] = axes(mine);
  layout.partial_ = partial_;
  return layout;
}

Layout Layout::on(const Grid& grid) const {
  require(grid.same_axes(grid_), "the other grid must have the same axes");
  Layout layout = *this;
  layout.grid_ = grid;
  return layout;
}

Box Layout::owned(int rank) const {
  Box box(shape_);
  for (int d = 0; d < shape_.dims(); ++d)
    for (const int axis : axes(d)) box[d] = balanced_block(box[d], grid_.extent(axis), grid_.coordinate(rank, axis));
  return box;
}

Index Layout::elements(int rank) const {
  Index elements = 1;
  for (int d = 0; d < shape_.dims(); ++d) {
    Interval block{0, shape_.extent(d)};
    for (const int axis : axes(d)) block = balanced_block(block, grid_.extent(axis), grid_.coordinate(rank, axis));
    elements *= block.extent();
  }
  return elements;
}

namespace {

/// Returns the index of the balanced block that contains `at`.
/// @pre The range contains `at`.
int block_of(Interval range, int parts, Index at) {
  const Index size = range.extent() / parts, larger = range.extent() % parts;
  const Index offset = at - range.lo, in_larger = larger * (size + 1);
  return static_cast<int>(offset < in_larger ? offset / (size + 1) : larger + (offset - in_larger) / size);
}

}  // namespace

/// What the coordinates of a rank along the axes of one dimension say of it.
struct Layout::Holding {
  int rank;           // what they add to its number
  Interval interval;  // what it holds of the dimension
};

/// Returns this for all coordinates along the axes of dimension d at which a rank holds some of the interval. Each has
/// the part of the interval.
std::vector<Layout::Holding> Layout::holders_along(int d, Interval wanted, int rank, AxisSet set) const {
  std::vector<Holding> all{{0, {0, shape_.extent(d)}}}, parts;
  for (const int axis : axes(d)) {
    const int extent = grid_.extent(axis), own = grid_.coordinate(rank, axis);
    const bool free = (set >> axis & 1U) != 0;
    parts.clear();
    for (const auto& [before, interval] : all) {
      const Interval some = intersect(interval, wanted);
      if (some.empty()) continue;
      const int first = free ? block_of(interval, extent, some.lo) : own;
      const int last = free ? block_of(interval, extent, some.hi - 1) : own;
      for (int i = first; i <= last; ++i)
        parts.push_back({before + i * grid_.stride(axis), balanced_block(interval, extent, i)});
    }
    std::swap(all, parts);
  }
  for (Holding& each : all) each.interval = intersect(each.interval, wanted);
  std::erase_if(all, [](const Holding& each) { return each.interval.empty(); });
  return all;
}

std::vector<Transfer> Layout::holders(const Box& box, int rank, AxisSet set) const {
  std::vector<Transfer> all{{0, box}}, pairs;
  /// Replaces every entry by its pairs with all choices of a list.
  const auto pair_with = [&](const auto& choices, auto&& add) {
    pairs.clear();
    pairs.reserve(all.size() * choices.size());
    for (const Transfer& each : all)
      for (const auto& choice : choices) add(pairs.emplace_back(each), choice);
    std::swap(all, pairs);
  };
  for (int d = 0; d < shape_.dims(); ++d)
    pair_with(holders_along(d, box[d], rank, set), [d](Transfer& holder, const Holding& along) {
      holder.peer += along.rank;
      holder.box[d] = along.interval;
    });
  const AxisSet whole = grid_.all() & ~sharding();
  for (int axis = 0; axis < grid_.axes(); ++axis) {
    if ((whole >> axis & 1U) == 0) continue;
    std::vector<int> along{grid_.coordinate(rank, axis)};
    if ((set >> axis & 1U) != 0) {
      along.resize(static_cast<std::size_t>(grid_.extent(axis)));
      std::iota(along.begin(), along.end(), 0);
    }
    pair_with(along, [&](Transfer& holder, int i) { holder.peer += i * grid_.stride(axis); });
  }
  const auto lower = [](const Transfer& a, const Transfer& b) { return a.peer < b.peer; };
  if (!std::is_sorted(all.begin(), all.end(), lower)) std::sort(all.begin(), all.end(), lower);
  return all;
}

std::vector<Box> Layout::owned() const {
  std::vector<Box> boxes;
  boxes.reserve(static_cast<std::size_t>(grid_.size()));
  for (int rank = 0; rank < grid_.size(); ++rank) boxes.push_back(owned(rank));
  return boxes;
}

}  // namespace partita
