#include "strategies/cost/symmetry.hpp"

#include <algorithm>
#include <functional>

namespace partita {

namespace {

/// Returns the axes of dimensions that are sharded into unequal blocks.
AxisSet uneven(const Layout& layout) {
  AxisSet axes = 0;
  for (int d = 0; d < layout.shape().dims(); ++d) {
    Index blocks = 1;
    for (const int axis : layout.axes(d)) blocks *= layout.grid().extent(axis);
    if (blocks > 1 && layout.shape().extent(d) % blocks != 0) axes |= layout.sharding(d);
  }
  return axes;
}

/// Returns the axes along which a block of one layout can overlap blocks of the other layout at other coordinates.
AxisSet mixed(const Layout& from, const Layout& to) {
  AxisSet axes = 0;
  for (int d = 0; d < std::min(from.shape().dims(), to.shape().dims()); ++d)
    if (from.axes(d) != to.axes(d)) axes |= from.sharding(d) | to.sharding(d);
  return axes;
}

AxisSet uneven(const LayerPlan::Steps& steps) {
  AxisSet axes = 0;
  for (const auto& step : steps) {
    axes |= uneven(step.from) | uneven(step.to);
    if (step.verb == Verb::exchange) axes |= mixed(step.from, step.to);
  }
  return axes;
}

/// Returns the axes along which a product is not symmetric. If panels of an operand travel, these include the axes of
/// the dimension that the panels cut. An operand that is used where it lies needs no other rank's blocks.
AxisSet uneven(const ProductPlan& product) {
  AxisSet axes = uneven(product.redistribute_c);
  const auto add = [&](const ProductOperand& operand, const Layout& used, bool travels) {
    axes |= uneven(operand.layout) | uneven(used) | mixed(operand.layout, used);
    if (const int cut = product.cut_dim(operand); travels && cut >= 0)
      axes |= used.sharding(cut) | operand.layout.sharding(cut);
  };
  add(product.a, product.a_used, !(product.a.layout == product.a_used));
  add(product.b, product.b_used, !(product.b.layout == product.b_used));
  add(product.c, product.c_made, product.sums_slabs);
  return axes;
}

}  // namespace

// A transfer between stages with equal grids goes from each coordinate to the same one.
AxisSet symmetric_axes(const StageBoundary& boundary) {
  const Grid& grid = boundary.from.grid();
  if (!grid.same_axes(boundary.to.grid())) return 0;
  return grid.all() & ~(uneven(boundary.from) | uneven(boundary.to) | mixed(boundary.from, boundary.to));
}

bool equivalent_cost(const LayerPlan& a, const LayerPlan& b) {
  if (a.recompute != b.recompute || a.fusion() != b.fusion() || !a.sends_to_stages.empty() ||
      !b.sends_to_stages.empty())
    return false;
  return a.binding == b.binding || (equal_operators(*a.op, *b.op) && *a.binding == *b.binding);
}

std::size_t cost_hash(const LayerPlan& layer) {
  std::size_t hash = std::hash<std::string_view>()(layer.op->kind());
  const auto mix = [&](std::size_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15U; };  // Fibonacci hashing
  const auto mix_layout = [&](const Layout& layout) {
    mix(layout.partial() << 16U | layout.sharding());
    for (int d = 0; d < layout.shape().dims(); ++d) mix(layout.sharding(d));
  };
  const auto mix_shape = [&](const Shape& shape) {
    for (int d = 0; d < shape.dims(); ++d) mix(static_cast<std::size_t>(shape.extent(d)));
  };
  mix_shape(layer->shape);
  for (const Shape& shape : layer->input_shapes) mix_shape(shape);
  for (const auto& w : layer->at.w) {
    mix_shape(w.shape());
    mix_layout(w);
  }
  mix(layer->at.y.sharding() << 16U | layer->y.sharding());
  mix(static_cast<std::size_t>(layer->y.grid().first_rank()));
  for (const auto* layouts : {&layer->at.x, &layer->at.dx})
    for (const Layout& layout : *layouts) mix_layout(layout);
  for (const ProductPlan& product : layer->at.products) {
    for (const Layout* used : {&product.a_used, &product.b_used, &product.c_made}) mix_layout(*used);
    mix(product.panels.size());
  }
  return hash;
}

AxisSet irregular_axes(const LayerPlan& layer) {
  constexpr int most_planned = 512;  // to plan the panels of one rank takes time in proportion to its peers
  if (!layer->at.products.empty() && layer->at.y.grid().size() > most_planned) return 0;
  AxisSet blocks = uneven(layer->at.y) | uneven(layer->y), exchanged = 0;
  for (const auto* layouts : {&layer->at.x, &layer->at.dx})
    for (const Layout& layout : *layouts) blocks |= uneven(layout);
  for (const auto* halo : {&layer->at.x_halo, &layer->at.dy_halo})
    if (*halo) exchanged |= (*halo)->axes();
  if (layer->at.ring) exchanged |= layer->at.ring->axes();
  const auto add = [&](const LayerPlan::Steps& steps) {
    for (const auto& step : steps) {
      if (step.verb != Verb::exchange) continue;
      exchanged |= mixed(step.from, step.to);
      blocks |= uneven(step.from) | uneven(step.to);
    }
  };
  for (const auto* steps : {&layer->redistribute_output, &layer->redistribute_dy}) add(*steps);
  for (const auto* lists : {&layer->redistribute_input, &layer->redistribute_dx})
    for (const auto& steps : *lists) add(steps);
  for (const ProductPlan& product : layer->at.products) {
    add(product.redistribute_c);
    for (const Layout* layout :
         {&product.a.layout, &product.a_used, &product.b.layout, &product.b_used, &product.c.layout, &product.c_made})
      blocks |= uneven(*layout);
    exchanged |= uneven(product);
  }
  return blocks & exchanged;
}

AxisSet irregular_axes(const Plan& plan, int stage) {
  AxisSet axes = 0;
  for (const auto* layers : {&plan.layers, &plan.remainder_layers})
    for (const LayerPlan& layer : *layers)
      for (int replica = 0; replica < plan.replicas(); ++replica)
        if (plan.stage_running(layer.group, replica) == stage) axes |= irregular_axes(layer);
  return axes;
}

AxisSet symmetric_axes(const LayerPlan& layer) {
  AxisSet axes =
      uneven(layer->at.y) | uneven(layer->y) | uneven(layer->redistribute_output) | uneven(layer->redistribute_dy);
  for (const auto* layouts : {&layer->at.x, &layer->at.dx, &layer->at.w})
    for (const Layout& layout : *layouts) axes |= uneven(layout);
  for (const auto* lists : {&layer->redistribute_input, &layer->redistribute_dx})
    for (const auto& steps : *lists) axes |= uneven(steps);
  for (const auto& rest : layer->rest) axes |= uneven(rest.w);
  for (const auto& collective : layer->at.collectives) axes |= uneven(collective.layout);
  for (const auto& product : layer->at.products) axes |= uneven(product);
  for (const auto* halo : {&layer->at.x_halo, &layer->at.dy_halo})
    if (*halo) axes |= (*halo)->axes();  // along these axes ranks exchange halos with neighbors
  if (layer->at.ring) axes |= layer->at.ring->axes();
  for (const auto& boundary : layer.sends_to_stages) axes |= uneven(boundary.complete_sums) | uneven(boundary.from);
  return layer->at.y.grid().all() & ~axes;
}

AxisSet symmetric_axes(const Plan& plan, int stage) {
  if (plan.second_replica) return 0;
  AxisSet even = plan.grids[stage].all();
  for (const auto* layers : {&plan.layers, &plan.remainder_layers})
    for (const LayerPlan& layer : *layers) {
      const bool here = plan.stage_running(layer.group) == stage;
      if (here) even &= symmetric_axes(layer);
      for (const auto& boundary : layer.sends_to_stages)
        if (here || plan.stage_running(boundary.group) == stage) even &= symmetric_axes(boundary);
    }
  for (const auto& bucket : plan.buckets)
    if (plan.stage_of(bucket.last()) == stage) even &= symmetric_axes(plan, bucket);
  return even;
}

AxisSet first_is_fullest(const Plan& plan, int stage) {
  AxisSet others = 0;
  const auto add = [&](const std::vector<LayerPlan>& layers, int replica) {
    for (const LayerPlan& layer : layers) {
      if (plan.stage_running(layer.group, replica) != stage) continue;
      for (const auto* halo : {&layer->at.x_halo, &layer->at.dy_halo})
        if (*halo) others |= (*halo)->axes();
      if (layer->at.ring) others |= layer->at.ring->axes();
      for (const auto& product : layer->at.products) others |= uneven(product);
    }
  };
  for (const auto* layers : {&plan.layers, &plan.remainder_layers}) add(*layers, 0);
  if (plan.second_replica)
    for (const auto* layers : {&plan.second_replica->layers, &plan.second_replica->remainder_layers}) add(*layers, 1);
  return plan.grids[stage].all() & ~others;
}

AxisSet symmetric_axes(const Plan& plan, const Bucket& bucket) {
  AxisSet axes = plan.sharded_optimizer ? bucket.axes : 0;  // the ranks' shares differ
  const Grid& grid = plan.grid_of(bucket.last());
  for (const auto& [layer, weight] : bucket.entries) axes |= uneven(plan.layers[layer]->rest[weight].w);
  return grid.all() & ~axes;
}

}  // namespace partita
