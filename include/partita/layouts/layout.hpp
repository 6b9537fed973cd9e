#pragma once

#include "partita/base/axis_list.hpp"
#include "partita/base/box.hpp"
#include "partita/base/grid.hpp"
#include "partita/base/shape.hpp"
#include "partita/base/transfer.hpp"

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// How a tensor of a global shape is placed on a grid. Each dimension has an ordered list of axes that shard it (major
/// first). Over some axes the values may be partial (a pending sum). All other axes replicate. A Layout is a value and
/// knows no communicator. Halos are not part of it.
///
///     N@data H@(y,x)      grid data=2 y=2 x=2, H=10: rank 3 is data=0 y=1 x=1
///     H: |0 1 2|3 4|5 6 7|8 9|    cut over y into 5+5, each block over x into 3+2
///          y0x0  y0x1  y1x0  y1x1
class Layout {
 public:
  /// A layout without dimensions, on one rank.
  Layout() = default;
  /// Every rank of the grid holds the whole tensor.
  Layout(const Shape& shape, Grid grid) : shape_(shape), grid_(std::move(grid)) {}

  /// Reads a layout from text, e.g. "N@data C H@(y,x) sum@z". A dimension without axes, or one that is not named, is
  /// not sharded. An axis that is not named replicates. Throws Error, with the column and a caret, if a dimension or
  /// axis is unknown (with the nearest name) or is used twice.
  static Layout parse(std::string_view text, const Shape& shape, const Grid& grid);

  /// The inverse of `parse`: all dimensions in order, then the partial axes.
  std::string print() const;

  const Shape& shape() const { return shape_; }
  const Grid& grid() const { return grid_; }
  /// The axes that shard dimension d, major first.
  const AxisList& axes(int d) const { return axes_[d]; }
  /// The axes that shard dimension d, as a set.
  AxisSet sharding(int d) const;
  /// The axes that shard the dimension named `dim`; empty if the shape lacks it.
  AxisSet sharding(char dim) const;
  /// The axes that shard any dimension.
  AxisSet sharding() const;
  /// The axes over which the values are a pending sum.
  AxisSet partial() const { return partial_; }
  /// The axes over which the values are equal.
  AxisSet replicated() const { return grid_.all() & ~sharding() & ~partial_; }

  /// Returns this layout with dimension d sharded over `axes` instead. Throws Error if one of them is already used.
  Layout with(int d, const AxisList& axes) const&;
  Layout with(int d, const AxisList& axes) &&;
  /// Returns this layout with other partial axes. Throws Error if one of them shards a dimension.
  Layout with_partial(AxisSet partial) const&;
  Layout with_partial(AxisSet partial) &&;
  /// The layout of the gradient of a value with this layout. It has the same shards, and it is replicated where this
  /// layout is partial, since d(sum of parts)/d(each part) = 1.
  Layout dual() const { return with_partial(0); }
  /// Returns a layout for another shape on the same grid. Dimensions that both shapes have keep their axes; dimensions
  /// that `shape` lacks are dropped.
  Layout onto(const Shape& shape) const;

  /// Returns this layout on another grid.
  /// @pre The grid has the same axes.
  Layout on(const Grid& grid) const;

  /// The box that the rank holds: nested balanced blocks, half-open in global coordinates. It may be empty.
  Box owned(int rank) const;
  /// Returns the number of elements of that box.
  Index elements(int rank) const;
  /// The boxes of all ranks of the grid, in the order of ranks.
  std::vector<Box> owned() const;

  /// Returns the ranks that hold some element of `box`, in ascending order, and what each holds of it. Only ranks whose
  /// coordinates equal those of `rank` except along `axes` are looked at.
  std::vector<Transfer> holders(const Box& box, int rank, AxisSet axes) const;

  bool operator==(const Layout&) const = default;

 private:
  Shape shape_;
  Grid grid_;
  std::array<AxisList, max_dims> axes_;
  AxisSet partial_ = 0;
};

/// Returns block i of `range`, cut into `parts` balanced blocks: sizes differ by at most one, and the first blocks are
/// the larger ones.
Interval balanced_block(Interval range, int parts, int i);
/// Returns the extents of all `parts` blocks of [0, total).
std::vector<Index> balanced_counts(Index total, int parts);

}  // namespace partita
