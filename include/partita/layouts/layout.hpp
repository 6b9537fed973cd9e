#pragma once

#include "partita/base/axis_list.hpp"
#include "partita/base/box.hpp"
#include "partita/base/grid.hpp"
#include "partita/base/shape.hpp"

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// How a tensor of a global shape lies on a grid: for each dimension the ordered axes that shard it (major first), the
/// axes over which the values are partial (a pending sum), and all other axes, which replicate. A value that knows no
/// communicator. Halos are no part of it.
///
///     N@data H@(y,x)      grid data=2 y=2 x=2, H=10: rank 3 is data=0 y=1 x=1
///     H: |0 1 2|3 4|5 6 7|8 9|    cut over y into 5+5, each block over x into 3+2
///          y0x0  y0x1  y1x0  y1x1
class Layout {
 public:
  /// No dimension, one rank.
  Layout() = default;
  /// Every rank of the grid holds all of the shape.
  Layout(const Shape& shape, Grid grid) : shape_(shape), grid_(std::move(grid)) {}

  /// Reads e.g. "N@data C H@(y,x) sum@z". A bare or unnamed dimension is whole; an axis that is not named replicates.
  /// Throws Error with the column and a caret for an unknown dimension or axis (with the nearest name) or one that is
  /// used twice.
  static Layout parse(std::string_view text, const Shape& shape, const Grid& grid);

  /// The inverse of `parse`: every dimension in order, then the partial axes.
  std::string print() const;

  const Shape& shape() const { return shape_; }
  const Grid& grid() const { return grid_; }
  /// Axes that shard dimension d, major first.
  const AxisList& axes(int d) const { return axes_[static_cast<std::size_t>(d)]; }
  /// Axes that shard dimension d, as a set.
  AxisSet sharding(int d) const;
  /// Axes that shard the dimension called `dim`; none if the shape lacks it.
  AxisSet sharding(char dim) const;
  /// Axes that shard any dimension.
  AxisSet sharding() const;
  /// Axes over which the values are a pending sum.
  AxisSet partial() const { return partial_; }
  /// Axes over which the values are the same.
  AxisSet replicated() const { return grid_.all() & ~sharding() & ~partial_; }

  /// This layout with dimension d sharded over `axes` instead; throws Error if one is in use.
  Layout with(int d, const AxisList& axes) const&;
  Layout with(int d, const AxisList& axes) &&;
  /// This layout with other partial axes; throws Error if one shards a dimension.
  Layout with_partial(AxisSet partial) const&;
  Layout with_partial(AxisSet partial) &&;
  /// The layout of the gradient of a value laid out like this: the same shards, and replicated where this is partial,
  /// since d(sum of parts)/d(each part) = 1.
  Layout dual() const { return with_partial(0); }
  /// The same placement of the same dimensions for another shape on the same grid; dimensions that it lacks are
  /// dropped.
  Layout onto(const Shape& shape) const;

  /// This layout on another grid of the same axes; throws Error for other axes.
  Layout on(const Grid& grid) const;

  /// What the rank holds: nested balanced blocks, half-open in global coordinates; may be empty.
  Box owned(int rank) const;
  /// `owned` of every rank of the grid.
  std::vector<Box> owned() const;

  bool operator==(const Layout&) const = default;

 private:
  Shape shape_;
  Grid grid_;
  std::array<AxisList, max_dims> axes_;
  AxisSet partial_ = 0;
};

/// Block i of `range` cut into `parts` balanced blocks: sizes differ by one at most, remainders go to low blocks.
Interval balanced_block(Interval range, int parts, int i);
/// The extents of all `parts` blocks of [0, total).
std::vector<Index> balanced_counts(Index total, int parts);

}  // namespace partita
