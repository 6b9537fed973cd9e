#include "src/train/executor/layer_runner.hpp"

#include "partita/base/error.hpp"
#include "partita/tensor/redistribute.hpp"
#include "src/device/profile.hpp"

#include <algorithm>

namespace partita {

LayerRunner::LayerRunner(const RunContext& context, const RankContext& rank, const std::vector<LayerPlan>& layers,
                         int replica)
    : context_(context), rank_(rank), layers_(layers), boxes_(layers.size()), kernels_(layers.size()) {
  const int stage = context.plan.stage_of_rank(context.world.rank());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (context.plan.stage_of(static_cast<int>(i), replica) != stage) continue;
    kernels_[i] = make_kernel(layers[i], context.grid.rank());
    boxes_[i].y = layers[i]->at.y.owned(context.grid.rank());
    for (const auto& dx : layers[i]->at.dx) boxes_[i].dx.push_back(dx.owned(context.grid.rank()));
  }
}

void LayerRunner::add_problems(std::vector<ConvProblem>& problems) const {
  for (std::size_t i = 0; i < kernels_.size(); ++i) {
    if (!kernels_[i]) continue;
    for (const auto& problem : kernels_[i]->problems(context_.plan.workload.training, rank_.ahead(), fused(i)))
      if (std::find(problems.begin(), problems.end(), problem) == problems.end()) problems.push_back(problem);
  }
}

Tensor LayerRunner::allocate(const Box& box, std::string_view names) const {
  return {context_.plan.workload.dtype, names, box, context_.allocator, MemoryClass::activations, Fill::none};
}

/// KernelCall::fused, of the layer or of the activation.
bool LayerRunner::fused(std::size_t i) const {
  const LayerPlan& layer = layers_[i];
  if (layer.computed_by_reader) return !keep_;
  const LayerPlan& first = layer.fusible ? layers_[layer.inputs.front()] : layer;
  switch (first.activation_fusion()) {
    case ActivationFusion::no: return false;
    case ActivationFusion::where_fused: return !keep_ && rank_.backend.fuses(*first.next_activation);
    default: return !keep_;
  }
}

/// True if the gradients of the layer's inputs are dy itself: of an addition, or of an activation whose gradient the
/// layer before it computes.
bool LayerRunner::forwards_gradient(std::size_t i) const {
  return layers_[i].forwards_gradient && (!layers_[i].fusible || fused(i));
}

KernelCall LayerRunner::call(std::size_t i, Microbatch& m, const LayerState& state) const {
  const auto& weights = context_.parameters.layer(i);
  return {.rank = rank_,
          .grid = context_.grid,
          .counter = context_.counter,
          .layer = layers_[i],
          .w = weights.compute,
          .dw = weights.gradient,
          .saved = m.saved[i],
          .target = m.batch.target,
          .seed = context_.seed,
          .step = m.step,
          .first_sample = m.first_sample,
          .share = m.share * (layers_[i].op->adds_loss() ? loss_scale_ : 1),
          .is_first_microbatch = !state.forward_ran,
          .training = context_.plan.workload.training,
          .fused = fused(i),
          .dropped = layers_[i].drops < 0 || keep_ ? nullptr : &layers_[layers_[i].inputs[layers_[i].drops]],
          .write = state.has_dw ? Write::add : Write::over,
          .result = m.result,
          .first_place = m.first_place,
          .kept = m.kept.empty() || !m.kept[i] ? nullptr : &m.kept[i]};
}

Tensor LayerRunner::convert_layout(std::size_t i, std::string_view role, const Tensor& from,
                                   const LayerPlan::Steps& steps) const {
  if (steps.empty()) return from;
  context_.counter.set_label(layers_[i].name, role);
  DistTensor tensor;
  tensor.layout = steps.front().from;
  tensor.local = from;
  return redistribute(tensor, steps, context_.grid, rank_.stream).local;
}

void LayerRunner::run(const StepOp& op, Microbatch& m, std::vector<LayerState>& states) const {
  using enum StepOp::Kind;
  const auto i = static_cast<std::size_t>(op.layer), part = static_cast<std::size_t>(op.part);
  const LayerPlan& layer = layers_[i];
  switch (op.kind) {
    case redistribute_input: {
      const Tensor& output = m.outputs[layer.inputs[part]];
      m.work.x.push_back(convert_layout(i, "x", output, layer->redistribute_input[part]));
      return;
    }
    case forward: return run_forward(i, op.recompute, m, states[i]);
    case redistribute_output: m.outputs[i] = convert_layout(i, "y", m.work.y, layer->redistribute_output); return;
    case redistribute_dy:
      m.dy[i] = convert_layout(i, "dy", m.gradients[i], layer->redistribute_dy);
      m.gradients[i] = {};
      return;
    case start_backward: {
      m.gradients[i] = {};
      const Timed timed(Profile::Part::compute);
      kernels_[i]->start_backward(call(i, m, states[i]), m.dy[i]);
      return;
    }
    case backward_filter: return run_backward_filter(op, m, states);
    case backward_data: return run_backward_data(i, m, states[i]);
    case redistribute_dx: return add_gradient(op, m);
    case gather_weights: return this->gather_weights(i, m);
    case wait_weights: return finish_gather(i, m);
    case release_weights: return release_gathered(i);
    case scatter_gradients: return this->scatter_gradients(i, m, states[i]);
    case add_gradients: return this->add_gradients(i, m, states);
    case release_work: m.work = {}; return;
    case release_dy: m.dy[i] = {}; return;
    case release_kept: m.saved[i].reset(); return;
    case release_output:
      if (!keep_) m.outputs[i] = {};
      return;
    case release_layer:
      m.gradients[i] = {};
      m.dy[i] = {};
      m.saved[i].reset();
      if (!keep_) m.outputs[i] = {};
      return;
    default: broken(fmt::format("the operation {} is not one of a layer", name(op.kind)));
  }
}

void LayerRunner::run_forward(std::size_t i, bool recompute, Microbatch& m, LayerState& state) const {
  const LayerPlan& layer = layers_[i];
  m.work.y = layer.inputs.empty()       ? m.batch.images[layer.input]
             : layer.in_place && !keep_ ? m.work.x.front()
                                        : allocate(boxes_[i].y, layer->shape.names());
  KernelCall now = call(i, m, state);
  now.is_recompute = recompute;
  const Timed timed(Profile::Part::compute);
  kernels_[i]->forward(now, m.work.x, m.work.y);
  state.forward_ran = true;
}

/// Adds this microbatch's gradients to those of the step. Where these have the master dtype, the kernel computes its
/// part in the compute dtype, beside them; so it does where they rest in shards, until scatter_gradients(). A table
/// that two layers share gets the gradient of the later one first.
void LayerRunner::run_backward_filter(const StepOp& op, Microbatch& m, std::vector<LayerState>& states) const {
  const auto i = static_cast<std::size_t>(op.layer);
  LayerState& state = states[i];
  KernelCall now = call(i, m, state);
  const std::span<const Tensor> sums = now.dw;
  const bool scatters = layers_[i].gathers_weights();
  std::vector<Tensor> parts;
  if (const DType dtype = context_.plan.workload.dtype; scatters || (!sums.empty() && sums.front().dtype() != dtype)) {
    std::size_t trained = 0;
    for (std::size_t w = 0; w < layers_[i]->weights.size(); ++w) {
      if (!layers_[i]->weights[w].trained) continue;
      const Tensor& sum = sums[trained++];
      parts.push_back(
          sum.beside(dtype, sum.names(), layers_[i]->at.w[w].owned(context_.grid.rank()), MemoryClass::workspace));
    }
    now.dw = parts;
    now.write = Write::over;
  }
  now.data_follows = op.data_follows && parts.empty();
  const Timed timed(Profile::Part::compute);
  if (now.write == Write::over && !kernels_[i]->supports_overwrite())
    for (const auto& dw : now.dw) dw.zero(rank_.stream);
  kernels_[i]->backward_filter(now, m.dy[i]);
  if (scatters) {
    m.shards[op.layer].parts = std::move(parts);
    return;
  }
  for (std::size_t w = 0; w < parts.size(); ++w) add_part(parts[w], sums[w], state);
  set_has_dw(i, states);
}

/// Adds a part to a gradient of the step, or begins it.
void LayerRunner::add_part(const Tensor& part, const Tensor& sum, const LayerState& state) const {
  state.has_dw ? add(part, sum, rank_.stream) : convert(part, sum, rank_.stream);
}

void LayerRunner::set_has_dw(std::size_t i, std::vector<LayerState>& states) const {
  states[i].has_dw = true;
  if (!layers_[i].holds(0)) states[layers_[i].table].has_dw = true;
}

Redistribution LayerRunner::start(const Layout& layout, const Tensor& from, const LayerPlan::Steps& steps) const {
  DistTensor tensor;
  tensor.layout = layout;
  tensor.local = from;
  Redistribution started(tensor, steps, context_.gradient_grid, rank_.stream);
  if (!rank_.overlap) started.wait();
  return started;
}

void LayerRunner::gather_weights(std::size_t i, Microbatch& m) const {
  const Timed timed(Profile::Part::exchange);
  context_.counter.set_label(layers_[i].name, "gathered w");
  auto& gathers = m.shards[static_cast<int>(i)].gathers.emplace_back();
  const auto& rounded = context_.parameters.layer(i).rounded;
  for (std::size_t w = 0; w < rounded.size(); ++w)
    if (const auto& rest = layers_[i]->rest[w]; !rest.gather.empty())
      gathers.push_back(start(rest.w, rounded[w], rest.gather));
}

void LayerRunner::finish_gather(std::size_t i, Microbatch& m) const {
  const Timed timed(Profile::Part::exchange);
  auto& gathers = m.shards[static_cast<int>(i)].gathers;
  auto gather = gathers.front().begin();
  auto& compute = context_.parameters.layer(i).compute;
  for (std::size_t w = 0; w < compute.size(); ++w)
    if (!layers_[i]->rest[w].gather.empty()) compute[w] = gather++->finish().local;
  gathers.pop_front();
}

void LayerRunner::release_gathered(std::size_t i) const {
  auto& compute = context_.parameters.layer(i).compute;
  for (std::size_t w = 0; w < compute.size(); ++w)
    if (!layers_[i]->rest[w].gather.empty()) compute[w] = {};
}

/// Sums are taken in the master dtype.
void LayerRunner::scatter_gradients(std::size_t i, Microbatch& m, const LayerState& state) const {
  const Timed timed(Profile::Part::exchange);
  context_.counter.set_label(layers_[i].name, "scattered dw");
  Microbatch::Shards& shards = m.shards[static_cast<int>(i)];
  std::vector<Tensor> parts = std::exchange(shards.parts, {});
  const auto& sums = context_.parameters.layer(i).gradient;
  std::size_t trained = 0;
  for (std::size_t w = 0; w < layers_[i]->weights.size(); ++w) {
    if (!layers_[i]->weights[w].trained) continue;
    Tensor part = std::exchange(parts[trained], {});
    const Tensor& sum = sums[trained++];
    const auto& steps = layers_[i]->rest[w].scatter;
    if (steps.empty()) {
      add_part(part, sum, state);
      continue;
    }
    part = convert(part, master_dtype(context_.plan.workload.dtype), rank_.stream);
    shards.scatters.push_back(start(layers_[i]->at.dw[w], part, steps));
  }
}

void LayerRunner::add_gradients(std::size_t i, Microbatch& m, std::vector<LayerState>& states) const {
  const Timed timed(Profile::Part::exchange);
  Microbatch::Shards& shards = m.shards[static_cast<int>(i)];
  const auto& sums = context_.parameters.layer(i).gradient;
  auto scatter = shards.scatters.begin();
  std::size_t trained = 0;
  for (std::size_t w = 0; w < layers_[i]->weights.size(); ++w) {
    if (!layers_[i]->weights[w].trained) continue;
    const Tensor& sum = sums[trained++];
    if (!layers_[i]->rest[w].scatter.empty()) add_part(scatter++->finish().local, sum, states[i]);
  }
  shards.scatters.clear();
  set_has_dw(i, states);
}

void LayerRunner::progress(Microbatch& m) {
  for (auto& [layer, shards] : m.shards) {
    for (auto& gathers : shards.gathers)
      for (auto& gather : gathers) gather.progress();
    for (auto& scatter : shards.scatters) scatter.progress();
  }
}

void LayerRunner::run_backward_data(std::size_t i, Microbatch& m, const LayerState& state) const {
  const LayerPlan& layer = layers_[i];
  if (forwards_gradient(i)) return m.work.dx.assign(layer.inputs.size(), m.dy[i]);
  KernelCall now = call(i, m, state);
  if (layer.adds_gradient) now.added = std::exchange(m.gradients[layer.inputs.front()], {});
  const bool overwrites = now.added && !now.added.shares();
  for (std::size_t j = 0; j < layer.inputs.size(); ++j)
    m.work.dx.push_back(overwrites ? now.added
                        : layer.op->reads_integers(static_cast<int>(j))
                            ? Tensor()
                            : allocate(boxes_[i].dx[j], layer->input_shapes[j].names()));
  const Timed timed(Profile::Part::compute);
  kernels_[i]->backward_data(now, m.dy[i], m.work.dx);
}

/// Adds the gradient of one input to the gradient from other readers of that input: in its memory, unless somebody else
/// holds it, as an addition forwards one gradient to both its inputs.
void LayerRunner::add_gradient(const StepOp& op, Microbatch& m) const {
  const auto i = static_cast<std::size_t>(op.layer), part = static_cast<std::size_t>(op.part);
  const Tensor gradient = convert_layout(i, "dx", m.work.dx[part], layers_[i]->redistribute_dx[part]);
  Tensor& sum = m.gradients[layers_[i].inputs[part]];
  if (!sum) {
    sum = gradient;
  } else if (sum.shares()) {
    const Tensor both = allocate(sum.box(), sum.names());
    rank_.backend.sum(sum, gradient, false, both, rank_.stream);
    sum = both;
  } else {
    add(gradient, sum, rank_.stream);
  }
}

}  // namespace partita
