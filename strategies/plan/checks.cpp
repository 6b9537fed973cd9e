#include "strategies/plan/checks.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <map>

namespace partita {

namespace {

/// `name` returns what the layout is of. It is called for a message only, because binding is fast.
template <class Name>
void check_layout(const Layout& layout, const Shape& shape, const Grid& grid, Name&& name) {
  if (layout.shape() != shape)
    fail("its layouts() gives {} a layout for the shape \"{}\", but the shape is \"{}\"", name(),
         layout.shape().print(), shape.print());
  if (!layout.grid().same_axes(grid))
    fail("its layouts() gives {} a layout on the grid \"{}\", but the grid is \"{}\"", name(), layout.grid().print(),
         grid.print());
}

void check_count(std::size_t found, std::size_t wanted, std::string_view what) {
  if (found != wanted) fail("its layouts() gives {} layouts for its {} {}", found, wanted, what);
}

/// `name` is that of the tensor with this halo, whose layout is `layout`.
void check_halo(const std::optional<Halo>& halo, const Layout& layout, std::string_view name) {
  if (!halo) return;
  if (!halo->grid().same_axes(layout.grid()))
    fail("its layouts() gives {} a halo on the grid \"{}\", but the grid is \"{}\"", name, halo->grid().print(),
         layout.grid().print());
  for (const int rank : {0, layout.grid().size() - 1})
    if (const Box owned = layout.owned(rank), other = halo->owned(rank); !(owned == other))
      fail(
          "its layouts() gives {} a halo of a tensor of which rank {} owns {}, but of {} it owns {}; make the halo "
          "with the layouts of x and y",
          name, rank, other.print(), name, owned.print());
}

}  // namespace

void check_layouts(const LayerBinding& layer, const Grid& grid, bool training) {
  const OperatorLayouts& at = layer.at;
  check_count(at.x.size(), layer.input_shapes.size(), "inputs (x)");
  check_count(at.dx.size(), layer.input_shapes.size(), "gradients of inputs (dx)");
  check_count(at.w.size(), layer.weights.size(), "weights (w)");
  for (std::size_t i = 0; i < layer.input_shapes.size(); ++i) {
    check_layout(at.x[i], layer.input_shapes[i], grid, [&] { return fmt::format("input {}", i); });
    check_layout(at.dx[i], layer.input_shapes[i], grid, [&] { return fmt::format("the gradient of input {}", i); });
  }
  check_layout(at.y, layer.shape, grid, [] { return "its output"; });
  if (!at.x.empty()) check_halo(at.x_halo, at.x[0], "x");
  check_halo(at.dy_halo, at.y, "dy");
  for (std::size_t i = 0; i < layer.weights.size(); ++i) {
    const WeightSpec& weight = layer.weights[i];
    check_layout(at.w[i], weight.shape, grid, [&] { return fmt::format("weight '{}'", weight.name); });
    if (!training || !weight.trained) continue;
    if (i >= at.dw.size()) fail("its layouts() gives no layout for the gradient of weight '{}' (dw)", weight.name);
    check_layout(at.dw[i], weight.shape, grid, [&] { return fmt::format("the gradient of weight '{}'", weight.name); });
  }
}

void check_tensor_names(const Plan& plan) {
  const auto nested = [](const LayerPlan& layer) {
    const auto has_part = [](const WeightSpec& weight) { return weight.name.find('/') != std::string::npos; };
    return !layer->weights.empty() && (layer.name.find('/') != std::string::npos ||
                                       std::any_of(layer->weights.begin(), layer->weights.end(), has_part));
  };
  if (std::none_of(plan.layers.begin(), plan.layers.end(), nested)) return;
  std::map<std::string, const LayerPlan*> owners;
  for (const auto& layer : plan.layers)
    for (const auto& weight : layer->weights)
      for (const std::string_view state : {"", ".velocity", ".square", ".mean"})
        if (const auto [at, fresh] = owners.emplace(fmt::format("{}/{}{}", layer.name, weight.name, state), &layer);
            !fresh)
          fail("layers '{}' and '{}' both have a weight '{}' in a checkpoint; rename one", at->second->name, layer.name,
               at->first);
  for (const auto& [name, layer] : owners)
    for (std::size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1))
      if (const auto other = owners.find(name.substr(0, slash)); other != owners.end())
        fail(
            "layer '{}': its weight would be '{}' in a checkpoint, below '{}', which is a weight of layer '{}'; rename "
            "one",
            layer->name, name, other->first, other->second->name);
}

}  // namespace partita
