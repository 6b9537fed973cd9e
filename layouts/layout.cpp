#include "partita/layouts/layout.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

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

std::vector<Transfer> Layout::holders(const Box& box, int rank, AxisSet set) const {
  std::vector<Transfer> all{{0, box}}, parts;
  /// Replaces each entry by one for each coordinate of an axis from `first` to `last`.
  const auto divide = [&](int axis, auto&& first, auto&& last, auto&& block) {
    const bool free = (set >> axis & 1U) != 0;
    const int own = grid_.coordinate(rank, axis);
    parts.clear();
    for (const Transfer& each : all)
      for (int i = free ? first(each) : own, end = free ? last(each) : own; i <= end; ++i) {
        Transfer& part = parts.emplace_back(each);
        part.peer += i * grid_.stride(axis);
        block(part, i);
      }
    std::swap(all, parts);
  };
  for (int d = 0; d < shape_.dims(); ++d) {
    for (Transfer& each : all) each.box[d] = {0, shape_.extent(d)};
    const auto clip = [&] {
      std::erase_if(all, [&](const Transfer& each) { return intersect(each.box[d], box[d]).empty(); });
    };
    clip();
    for (const int axis : axes(d)) {
      const int extent = grid_.extent(axis);
      divide(
          axis, [&](const Transfer& t) { return block_of(t.box[d], extent, std::max(t.box[d].lo, box[d].lo)); },
          [&](const Transfer& t) { return block_of(t.box[d], extent, std::min(t.box[d].hi, box[d].hi) - 1); },
          [&](Transfer& t, int i) { t.box[d] = balanced_block(t.box[d], extent, i); });
      clip();
    }
    for (Transfer& each : all) each.box[d] = intersect(each.box[d], box[d]);
  }
  const AxisSet whole = grid_.all() & ~sharding();
  for (int axis = 0; axis < grid_.axes(); ++axis)
    if ((whole >> axis & 1U) != 0)
      divide(
          axis, [](const Transfer&) { return 0; }, [&](const Transfer&) { return grid_.extent(axis) - 1; },
          [](Transfer&, int) {});
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
