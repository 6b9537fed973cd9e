#include "partita/layouts/layout.hpp"

#include "partita/base/error.hpp"

#include <algorithm>

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
  axes_[static_cast<std::size_t>(d)] = axes;
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
    if (const int mine = shape_.find(shape.name(d)); mine >= 0) layout.axes_[static_cast<std::size_t>(d)] = axes(mine);
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

std::vector<Box> Layout::owned() const {
  std::vector<Box> boxes;
  boxes.reserve(static_cast<std::size_t>(grid_.size()));
  for (int rank = 0; rank < grid_.size(); ++rank) boxes.push_back(owned(rank));
  return boxes;
}

}  // namespace partita
