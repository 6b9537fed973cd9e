#include "strategies/cost/kernel_terms.hpp"

#include "strategies/cost/local_work.hpp"
#include "strategies/plan/layer_ops.hpp"

#include <algorithm>
#include <cmath>

namespace partita {

namespace {

Shape local_shape(const Layout& layout, int rank) {
  const Box box = layout.owned(rank);
  Shape shape;
  for (int d = 0; d < box.dims(); ++d) shape.push_back({layout.shape().name(d), box.extent(d)});
  return shape;
}

std::vector<Shape> local_inputs(const LayerPlan& layer, int rank) {
  std::vector<Shape> inputs;
  for (const auto& x : layer->at.x) inputs.push_back(local_shape(x, rank));
  return inputs;
}

double volume(const Layout& layout, int rank) { return static_cast<double>(layout.elements(rank)); }

/// Returns how many elements of trained weights a rank has.
double trained(const LayerPlan& layer, int rank) {
  double all = 0;
  for (std::size_t j = 0; j < layer->weights.size(); ++j)
    if (layer->weights[j].trained) all += volume(layer->at.w[j], rank);
  return all;
}

KernelKind kind_of(const LayerPlan& layer) {
  return layer->at.products.empty() ? layer.op->kernel_kind() : KernelKind::product;
}

/// Adds the kernel that an operation runs, as a multiple of the forward work. Gradients of weights that no contraction
/// computes (not `apart`) are computed together with the gradients of the inputs.
void add_kernel(KernelTerm& term, const StepOp& op, const LayerPlan& layer, bool apart) {
  using enum StepOp::Kind;
  if (op.kind == forward) {
    if (!layer.inputs.empty() && !layer.computed_by_producer && !layer.computed_by_reader)
      ++term.forwards[op.recompute ? Pass::backward_data : Pass::forward];
    term.recomputes = term.recomputes || op.recompute;
  }
  const bool computes_dx = layer.needs_any_dx() && !layer.forwards_gradient;
  if (computes_dx ? op.kind == backward_data : op.kind == backward_filter && !apart)
    term.backwards[Pass::backward_data] += layer.op->backward_work();
  if (op.kind == backward_filter && apart) ++term.backwards[Pass::backward_filter];
}

/// The extents of a matrix product on one rank.
struct ProductExtents {
  double m, n, k;
  double smallest() const { return std::max(1.0, std::min({m, n, k})); }  // an empty block is no narrow one
};

/// Returns the extents of a layer's product of y. The blocks have m k, k n and m n elements.
ProductExtents extents_of_product(const ProductPlan& product, int rank) {
  const double a = volume(product.a_used, rank), b = volume(product.b_used, rank), c = volume(product.c_made, rank);
  if (a * b * c == 0) return {0, 0, 0};
  return {std::sqrt(a * c / b), std::sqrt(b * c / a), std::sqrt(a * b / c)};
}

/// Returns the extents of the product that a convolution stands for: the places of y, the filters of the rank, and the
/// elements of each filter.
ProductExtents extents_of_places(const LayerPlan& layer, const Box& y, int rank) {
  const Layout& w = layer->at.w[0];
  const auto filters = static_cast<double>(w.owned(rank).extent(0));
  const auto channels = layer->at.y.shape().find('C');
  if (y.empty() || filters == 0) return {0, 0, 0};
  return {static_cast<double>(y.volume()) / static_cast<double>(y.extent(channels)), filters,
          volume(w, rank) / filters};
}

/// Returns the elements of the rows of a table that the indices on a rank name. Of a table whose rows are cut, each
/// rank has its share of them.
double elements_of_rows(const LayerPlan& layer, int rank) {
  const Layout& w = layer->at.w[0];
  const Box own = w.owned(rank);
  const int c = w.shape().find('C'), v = w.shape().find('V');
  const double share = static_cast<double>(own.extent(v)) / static_cast<double>(w.shape().extent(v));
  return volume(layer->at.x[0], rank) * static_cast<double>(own.extent(c)) * share;
}

/// Returns the operations of a layer's forward pass on one rank, whose block of the output is `y`.
double flops(LayerKernels& kernels, const Box& y, int rank) {
  const LayerPlan& layer = kernels.layer;
  if (!layer->at.products.empty()) {
    const auto [m, n, k] = extents_of_product(layer->at.products[0], rank);
    return 2 * m * n * k;
  }
  if (y.empty()) return 0;
  if (kernels.whole_flops || (!layer->weights.empty() && !layer.op->algorithms().empty())) {
    // Each weight is used once per spatial position of y. The operator knows only the global groups of channels.
    const auto channels = layer->at.y.shape().find('C');
    const auto places = [&](const Box& box) {
      return static_cast<double>(box.volume()) / static_cast<double>(box.extent(channels));
    };
    const double weights = volume(layer->at.w[0], rank) / static_cast<double>(layer->weights[0].shape.volume());
    if (!kernels.whole_flops) kernels.whole_flops = layer.op->flops(layer->input_shapes, layer->shape);
    return *kernels.whole_flops * weights * places(y) / places(Box(layer->shape));
  }
  const double own = layer.op->flops(local_inputs(layer, rank), local_shape(layer->at.y, rank));
  return layer->at.ring ? own * layer->at.ring->work(rank) : own;
}

}  // namespace

KernelTerms::KernelTerms(const Plan& plan, const KernelTimes& times, std::span<const Action::Kind> actions)
    : plan_(plan), times_(times), actions_(actions) {
  if (times.empty()) return;
  for (int stage = 0; stage < static_cast<int>(plan.grids.size()); ++stage) loops_.push_back(timed_loop(plan, stage));
}

std::optional<LayerTimes> KernelTerms::measured(const std::string& work, int group) const {
  return times_.find(work, loops_[plan_.stage_running(group)]);
}

std::optional<LayerTimes> KernelTerms::update(Index elements, int group) const {
  if (times_.empty()) return std::nullopt;
  return measured(update_work(elements, plan_.workload), group);
}

LayerKernels KernelTerms::of(const LayerPlan& layer) const {
  LayerKernels kernels{layer, {.kind = kind_of(layer)}, {}};
  const bool apart = layer.op->computes_dw_separately();
  for (const Action::Kind action : actions_)
    each_layer_op(layer, 0, action, false, [&](const StepOp& op) { add_kernel(kernels.term, op, layer, apart); });
  return kernels;
}

KernelTerm KernelTerms::on_rank(LayerKernels& kernels, int rank) const {
  const LayerPlan& layer = kernels.layer;
  if (!times_.empty())  // local_work() takes time
    if (const auto found = measured(local_work(layer, rank, plan_.workload), layer.group))
      return of_times(layer, *found);
  KernelTerm term = kernels.term;
  const Box y = layer->at.y.owned(rank);
  const auto element = static_cast<double>(size_of(plan_.workload.dtype));
  double x = 0, w = 0;  // in elements of the compute type
  for (std::size_t i = 0; i < layer->at.x.size(); ++i) {
    const Operator& producer = *plan_.layers[layer.inputs[i]].op;
    x += volume(layer->at.x[i], rank) * static_cast<double>(size_of(producer.output_type(plan_.workload.dtype))) /
         element;
  }
  for (const auto& layout : layer->at.w) w += volume(layout, rank);
  MemoryPasses passes = layer.op->memory_passes(plan_.workload.training);
  if (layer.activation_fusion() == ActivationFusion::both) passes.dy += 2;  // y, for both passes over dy
  if (layer.adds_gradient) passes.dx += 1;                                  // the gradient that it adds to
  const auto output = static_cast<double>(y.volume());
  const double rows = passes.row + passes.drow > 0 ? elements_of_rows(layer, rank) : 0;
  const HeldNumbers held =
      layer.inputs.empty() ? HeldNumbers{} : layer.op->numbers(layer->at.x[0], rank, plan_.workload.training);
  const auto elements = static_cast<double>(held.elements);
  term.flops = flops(kernels, y, rank);
  term.bytes =
      (passes.x * x + passes.y * output + passes.w * w + passes.row * rows + passes.elements * elements) * element;
  term.backward_bytes =
      (passes.dx * x + passes.dy * output + w + passes.drow * rows + passes.elements * elements) * element;
  for (const Pass pass : microbatch_passes) term.added[pass] += term.forwards[pass] * passes.apart * elements * element;
  if (term.backwards[Pass::backward_data] > 0)
    term.added[Pass::backward_data] += passes.backward_apart * elements * element;
  if (plan_.workload.training && plan_.gradient_dtype != plan_.workload.dtype)
    term.added[term.backwards[Pass::backward_filter] > 0 ? Pass::backward_filter : Pass::backward_data] +=
        trained(layer, rank) * (element + 2 * static_cast<double>(size_of(plan_.gradient_dtype)));
  if (!layer->at.products.empty())
    term.narrowest = extents_of_product(layer->at.products[0], rank).smallest();
  else if (term.kind != KernelKind::others)
    term.narrowest = layer->at.w.empty() ? static_cast<double>(layer.op->narrowest(layer->input_shapes))
                                         : extents_of_places(layer, y, rank).smallest();
  return term;
}

/// Returns the measured seconds of a layer's actions. A backward that recomputes runs the forward once more.
KernelTerm KernelTerms::of_times(const LayerPlan& layer, const LayerTimes& times) const {
  KernelTerm term{.kind = kind_of(layer), .measured = true};
  const double data = times.backward_data, filter = times.backward_filter;
  // One kernel for both gradients takes less time than two.
  const double both = data + filter > 0 ? times.backward / (data + filter) : 1;
  for (const Action::Kind action : actions_) {
    const double share = action == Action::Kind::backward ? both : 1;
    if (action == Action::Kind::forward) term.seconds[Pass::forward] += times.forward;
    if (action == Action::Kind::backward || action == Action::Kind::backward_data)
      term.seconds[Pass::backward_data] += data * share;
    if (forms_gradients(action)) term.seconds[Pass::backward_filter] += filter * share;
    each_layer_op(layer, 0, action, false, [&](const StepOp& op) {
      if (op.kind != StepOp::Kind::forward || !op.recompute) return;
      term.seconds[Pass::backward_data] += times.forward;
      term.recomputes = true;
    });
  }
  return term;
}

}  // namespace partita
