#pragma once

#include "partita/layouts/layout.hpp"

#include <vector>

namespace partita::test {

/// Every layout of `shape` on `grid`: each axis shards one dimension, at any place in its list, or is partial, or
/// replicates.
inline std::vector<Layout> all_layouts(const Shape& shape, const Grid& grid) {
  std::vector<Layout> layouts{Layout(shape, grid)};
  for (int axis = 0; axis < grid.axes(); ++axis) {
    const auto without = layouts;  // the axis replicates
    for (const auto& layout : without) {
      layouts.push_back(layout.with_partial(layout.partial() | AxisSet{1} << axis));
      for (int d = 0; d < shape.dims(); ++d)
        for (std::size_t at = 0; at <= layout.axes(d).size(); ++at) {
          auto axes = layout.axes(d);
          axes.insert(axes.begin() + static_cast<std::ptrdiff_t>(at), axis);
          layouts.push_back(layout.with(d, axes));
        }
    }
  }
  return layouts;
}

}  // namespace partita::test
