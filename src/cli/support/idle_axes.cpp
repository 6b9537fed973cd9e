#include "src/cli/support/idle_axes.hpp"

#include "partita/base/error.hpp"

namespace partita::cli {

namespace {

/// The axes of a layer over which ranks do different work.
AxisSet axes_that_divide(const LayerPlan& layer) {
  AxisSet used = layer->y.sharding() | layer->at.y.sharding() | layer->at.y.partial();
  for (const auto* layouts : {&layer->at.x, &layer->at.w, &layer->at.dw})
    for (const Layout& each : *layouts) used |= each.sharding() | each.partial();
  for (const ProductPlan& product : layer->at.products)
    used |=
        product.a_used.sharding() | product.b_used.sharding() | product.c_made.sharding() | product.c_made.partial();
  return used;
}

/// Returns the names of axes as a layout has them: "x" or "(data,x)".
std::string in_layout(const Grid& grid, AxisSet axes) {
  std::string text;
  int count = 0;
  for (int axis = 0; axis < grid.axes(); ++axis)
    if ((axes >> axis & 1U) != 0) text += fmt::format("{}{}", count++ == 0 ? "" : ",", grid.name(axis));
  return count > 1 ? "(" + text + ")" : text;
}

}  // namespace

std::vector<std::string> idle_axis_notes(const Plan& plan) {
  std::vector<std::string> notes;
  for (int stage = 0; stage < static_cast<int>(plan.grids.size()); ++stage) {
    const Grid& grid = plan.grids[static_cast<std::size_t>(stage)];
    AxisSet used = 0, samples = 0;
    for (const auto& layer : plan.layers) {
      if (plan.replica_on(layer.group, stage) < 0) continue;
      used |= axes_that_divide(layer);
      if (layer->y.shape().has('N')) samples |= layer->y.sharding('N');
    }
    const AxisSet idle = grid.all() & ~used;
    if (grid.group_size(idle) == 1) continue;
    notes.push_back(fmt::format(
        "no layer{} is sharded over {}, so groups of {} ranks do the same work; to divide the samples, write "
        "[[layer]] match = \"*\" output = \"N@{}\" in the strategy, or --rule \"*: N@{}\"",
        plan.grids.size() > 1 ? fmt::format(" of stage {}", stage) : "", in_layout(grid, idle), grid.group_size(idle),
        in_layout(grid, samples | idle), in_layout(grid, samples | idle)));
  }
  return notes;
}

}  // namespace partita::cli
