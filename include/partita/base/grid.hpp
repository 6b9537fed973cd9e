#pragma once

#include "partita/base/axis_list.hpp"
#include "partita/base/types.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// A set of axes of one grid: bit a stands for axis a.
using AxisSet = std::uint32_t;

/// An ordered list of named axes and the ranks that they arrange, row-major: the last axis varies fastest. A value.
/// Ranks are counted from 0 inside the grid; `first_rank` places the grid in the world.
class Grid {
 public:
  /// One rank, no axis.
  Grid();

  /// Reads "data=2 y=2 x=2". Throws Error, with the column, for anything else: a name that repeats, an extent
  /// below 1, a name that is no identifier. "" is one rank.
  static Grid parse(std::string_view text, int first_rank = 0);

  /// The same axes from another rank of the world on.
  Grid at(int first_rank) const;

  int size() const { return axes_->size; }
  int first_rank() const { return first_rank_; }
  int axes() const { return static_cast<int>(axes_->extents.size()); }
  const std::string& name(int axis) const;
  int extent(int axis) const { return axes_->extents[static_cast<std::size_t>(axis)]; }
  /// Position of the axis called `name`, or -1.
  int find(std::string_view name) const;
  const std::vector<std::string>& names() const;
  /// All axes.
  AxisSet all() const { return (AxisSet{1} << axes()) - 1; }

  /// Ranks from one coordinate along `axis` to the next.
  int stride(int axis) const { return axes_->strides[static_cast<std::size_t>(axis)]; }
  /// Coordinate of `rank` along `axis`.
  int coordinate(int rank, int axis) const { return rank / stride(axis) % extent(axis); }
  /// The ranks that differ from `rank` along `axes` only, ascending; `rank` is one of them.
  std::vector<int> group(int rank, AxisSet axes) const;
  /// Ranks in one such group.
  int group_size(AxisSet axes) const;
  /// How many coordinates of two ranks differ.
  int distance(int a, int b) const;

  /// The inverse of `parse`.
  std::string print() const;
  /// e.g. "(data,y)", in the grid's order; "()" for none.
  std::string print(AxisSet axes) const;

  bool operator==(const Grid& other) const;
  /// Equal axes, wherever in the world they lie.
  bool same_axes(const Grid& other) const;

 private:
  struct Axes {
    std::vector<std::string> names;
    std::vector<int> extents;
    std::vector<int> strides;  // ranks between neighbours along an axis
    int size = 1;
  };
  std::shared_ptr<const Axes> axes_;  // shared by copies, wherever they lie
  int first_rank_ = 0;
};

/// The rank with coordinate 0 along `axes` and with the coordinates of `rank` along all other axes.
int representative_rank(const Grid& grid, int rank, AxisSet axes);

}  // namespace partita
