#pragma once

#include "partita/layouts/layout.hpp"

#include <functional>
#include <string>
#include <vector>

namespace partita::test {

/// Returns grids of 1 to 8 ranks: prime sizes, unequal axes in both orders, and an axis of one rank.
inline std::vector<Grid> grids() {
  std::vector<Grid> grids;
  for (const char* text :
       {"", "x=1", "x=2", "x=3", "y=2 x=2", "x=5", "y=2 x=3", "y=3 x=2", "y=1 x=4", "x=7", "z=2 y=2 x=2"})
    grids.push_back(Grid::parse(text));
  return grids;
}

/// Returns every layout of `shape` on `grid`. Each axis shards one of the dimensions, is partial, or replicates. If
/// several axes shard one dimension, all their orders occur.
inline std::vector<Layout> all_layouts(const Shape& shape, const Grid& grid) {
  std::vector<Layout> layouts;
  const std::function<void(const Layout&, int)> place = [&](const Layout& layout, int axis) {
    if (axis == grid.axes()) {
      layouts.push_back(layout);
      return;
    }
    place(layout, axis + 1);
    place(layout.with_partial(layout.partial() | AxisSet{1} << axis), axis + 1);
    for (int d = 0; d < shape.dims(); ++d)
      for (std::size_t at = 0; at <= layout.axes(d).size(); ++at) {
        auto axes = layout.axes(d);
        axes.insert(at, axis);
        place(layout.with(d, axes), axis + 1);
      }
  };
  place(Layout(shape, grid), 0);
  return layouts;
}

/// Returns every set of axes of `grid`, and so the groups that any layout can need.
inline std::vector<AxisSet> all_axis_sets(const Grid& grid) {
  std::vector<AxisSet> sets;
  for (AxisSet set = 0; set <= grid.all(); ++set) sets.push_back(set);
  return sets;
}

}  // namespace partita::test
