#include "strategies/plan/check_layouts.hpp"

#include "partita/base/error.hpp"

namespace partita {

namespace {

void check_layout(const Layout& layout, const Shape& shape, const Grid& grid, std::string_view what) {
  if (layout.shape() != shape)
    fail("its layouts() gives {} a layout for the shape \"{}\", but the shape is \"{}\"", what, layout.shape().print(),
         shape.print());
  if (!layout.grid().same_axes(grid))
    fail("its layouts() gives {} a layout on the grid \"{}\", but the grid is \"{}\"", what, layout.grid().print(),
         grid.print());
}

void check_count(std::size_t found, std::size_t wanted, std::string_view what) {
  if (found != wanted) fail("its layouts() gives {} layouts for its {} {}", found, wanted, what);
}

}  // namespace

void check_layouts(const LayerBinding& layer, const Grid& grid, bool training) {
  const OperatorLayouts& at = layer.at;
  check_count(at.x.size(), layer.input_shapes.size(), "inputs (x)");
  check_count(at.dx.size(), layer.input_shapes.size(), "gradients of inputs (dx)");
  check_count(at.w.size(), layer.weights.size(), "weights (w)");
  for (std::size_t i = 0; i < layer.input_shapes.size(); ++i) {
    check_layout(at.x[i], layer.input_shapes[i], grid, fmt::format("input {}", i));
    check_layout(at.dx[i], layer.input_shapes[i], grid, fmt::format("the gradient of input {}", i));
  }
  check_layout(at.y, layer.shape, grid, "its output");
  for (std::size_t i = 0; i < layer.weights.size(); ++i) {
    const auto& [name, shape, init, deviation, decay, trained] = layer.weights[i];
    check_layout(at.w[i], shape, grid, fmt::format("weight '{}'", name));
    if (!training || !trained) continue;
    if (i >= at.dw.size()) fail("its layouts() gives no layout for the gradient of weight '{}' (dw)", name);
    check_layout(at.dw[i], shape, grid, fmt::format("the gradient of weight '{}'", name));
  }
}

}  // namespace partita
