#pragma once

#include "partita/base/axis_list.hpp"
#include "partita/base/types.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// A set of axes of one grid: bit a is set if axis a belongs to the set.
using AxisSet = std::uint32_t;

/// A grid of ranks: an ordered list of named axes. Ranks are arranged row-major, so the last axis varies fastest.
/// Ranks count from 0 inside the grid; `first_rank` is the world rank of the grid's rank 0.
class Grid {
 public:
  /// A grid of one rank, without axes.
  Grid();

  /// Parses a text such as "data=2 y=2 x=2"; "" is a grid of one rank. Throws Error, with the column, if a name is not
  /// an identifier, a name repeats, an extent is missing or below 1, or there are too many axes or ranks.
  static Grid parse(std::string_view text, int first_rank = 0);

  /// Returns a grid with the same axes that begins at world rank `first_rank`.
  Grid at(int first_rank) const;

  int size() const { return axes_->size; }
  int first_rank() const { return first_rank_; }
  int axes() const { return static_cast<int>(axes_->extents.size()); }
  const std::string& name(int axis) const;
  int extent(int axis) const { return axes_->extents[axis]; }
  /// Returns the position of the axis called `name`, or -1.
  int find(std::string_view name) const;
  const std::vector<std::string>& names() const;
  /// Returns the set of all axes.
  AxisSet all() const { return (AxisSet{1} << axes()) - 1; }

  /// The difference in rank between neighbors along `axis`.
  int stride(int axis) const { return axes_->strides[axis]; }
  /// The coordinate of `rank` along `axis`.
  int coordinate(int rank, int axis) const { return rank / stride(axis) % extent(axis); }
  /// Returns the ranks whose coordinates equal those of `rank` except along `axes`, in ascending order. `rank` itself
  /// is one of them.
  std::vector<int> group(int rank, AxisSet axes) const;
  /// Returns the number of ranks in such a group.
  int group_size(AxisSet axes) const;
  /// Returns the number of axes along which the coordinates of ranks `a` and `b` differ.
  int distance(int a, int b) const;

  /// Returns the text that `parse` reads.
  std::string print() const;
  /// Returns e.g. "(data,y)", in the grid's order; "()" for the empty set.
  std::string print(AxisSet axes) const;

  /// Compares the axes and the first rank.
  bool operator==(const Grid& other) const;
  /// Compares the axes only.
  bool same_axes(const Grid& other) const;

 private:
  struct Axes {
    std::vector<std::string> names;
    std::vector<int> extents;
    std::vector<int> strides;  // difference in rank between neighbors along an axis
    int size = 1;
  };
  std::shared_ptr<const Axes> axes_;  // copies share it, whatever their first rank
  int first_rank_ = 0;
};

/// The rank with coordinate 0 along `axes` and with the coordinates of `rank` along all other axes.
int representative_rank(const Grid& grid, int rank, AxisSet axes);

}  // namespace partita
