#include "src/cli/output/plan_notes.hpp"

#include "partita/base/error.hpp"
#include "src/model/operators.hpp"

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

void add_idle_axes(const Plan& plan, int stage, std::vector<std::string>& notes) {
  const Grid& grid = plan.grids[stage];
  AxisSet used = 0, samples = 0;
  for (const auto& layer : plan.layers) {
    if (plan.replica_on(layer.group, stage) < 0) continue;
    used |= axes_that_divide(layer);
    if (layer->y.shape().has('N')) samples |= layer->y.sharding('N');
  }
  const AxisSet idle = grid.all() & ~used;
  if (grid.group_size(idle) == 1) return;
  notes.push_back(
      fmt::format("no layer{} is sharded over {}, so groups of {} ranks do the same work; to divide the samples, write "
                  "[[layer]] match = \"*\" output = \"N@{}\" in the strategy, or --rule \"*: N@{}\"",
                  plan.grids.size() > 1 ? fmt::format(" of stage {}", stage) : "", in_layout(grid, idle),
                  grid.group_size(idle), in_layout(grid, samples | idle), in_layout(grid, samples | idle)));
}

/// A backward recomputes one microbatch after the other. With a single one, all activations of the stage exist again.
void add_useless_recomputation(const Plan& plan, int stage, std::vector<std::string>& notes) {
  if (!plan.workload.training || plan.microbatches > 1) return;
  int layers = 0, kept = 0;
  for (const auto& layer : plan.layers) {
    if (plan.replica_on(layer.group, stage) < 0 || layer.inputs.empty() || layer.op->is_loss()) continue;
    ++layers;
    kept += layer.recompute ? 0 : 1;
  }
  if (layers < 2 || kept > 0) return;
  notes.push_back(fmt::format(
      "all layers{} have recompute = true, but there is one microbatch: its backward needs all activations at once, so "
      "this saves little memory and computes the forward twice; set recompute = true only for layers between those "
      "that are kept, e.g. every other block, or use more microbatches",
      plan.grids.size() > 1 ? fmt::format(" of stage {}", stage) : ""));
}

}  // namespace

namespace {

/// Statistics over a part of the samples make results depend on how the samples are divided.
void add_local_statistics(const Plan& plan, std::vector<std::string>& notes) {
  if (!plan.workload.training) return;
  for (const auto& layer : plan.layers) {
    const auto* norm = dynamic_cast<const BatchNormOperator*>(layer.op.get());
    if (norm == nullptr || norm->norm().statistics == Statistics::global) continue;
    notes.push_back(
        fmt::format("layer '{}' computes its statistics over a part of the samples, so the result depends "
                    "on how the strategy divides them (--batch-norm)",
                    layer.name));
    return;
  }
}

}  // namespace

namespace {

/// The layer whose samples are cut into the fewest parts, if each layer has more parts than samples.
struct Idle {
  Index parts = 0, samples = 0, idle = 0, ranks = 0;
};

Idle find_idle(const Plan& plan) {
  Idle least;
  for (const auto& layer : plan.layers) {
    const Layout& y = layer->y;
    if (!y.shape().has('N')) continue;
    const Index cut = y.grid().group_size(y.sharding('N')), extent = y.shape()['N'];
    if (cut <= extent) return {};
    if (least.parts != 0 && cut >= least.parts) continue;
    least = {cut, extent, y.grid().size() / cut * (cut - extent), y.grid().size()};
  }
  return least;
}

}  // namespace

std::pair<Index, Index> idle_ranks(const Plan& plan) {
  const Idle found = find_idle(plan);
  return {found.idle, found.ranks};
}

std::string idle_ranks_note(const Plan& plan) {
  const auto [parts, samples, idle, ranks] = find_idle(plan);
  if (idle == 0) return "";
  return fmt::format(
      "{} of {} have no samples and do nothing, because {}{} cannot be divided into {} parts; use fewer ranks for the "
      "samples, shard space or channels too, or give a larger --batch",
      idle, counted(ranks, "rank"), counted(samples, "sample"), plan.microbatches > 1 ? " of a microbatch" : "", parts);
}

std::vector<std::string> plan_notes(const Plan& plan) {
  std::vector<std::string> notes;
  if (auto note = idle_ranks_note(plan); !note.empty()) notes.push_back(std::move(note));
  add_local_statistics(plan, notes);
  for (int stage = 0; stage < static_cast<int>(plan.grids.size()); ++stage) {
    add_idle_axes(plan, stage, notes);
    add_useless_recomputation(plan, stage, notes);
  }
  return notes;
}

}  // namespace partita::cli
