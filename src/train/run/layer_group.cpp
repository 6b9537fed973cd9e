#include "partita/train/run/layer_group.hpp"

#include "partita/base/error.hpp"
#include "partita/base/profile.hpp"
#include "partita/tensor/redistribute.hpp"

#include <algorithm>

namespace partita {

LayerGroup::LayerGroup(const Plan& plan, const std::vector<LayerPlan>& layers, Copy copy, const ProcessGrid& grid,
                       const RankContext& rank, Parameters& parameters, TrafficCounter& counter,
                       const std::shared_ptr<Allocator>& allocator, std::uint64_t seed)
    : plan_(plan),
      layers_(layers),
      grid_(grid),
      rank_(rank),
      parameters_(parameters),
      counter_(counter),
      allocator_(allocator),
      seed_(seed),
      bound_(layers.size()),
      kernels_(layers.size()) {
  const int replica = copy.first, group = copy.second, stage = plan.stage_running(group, replica);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto& layer = layers[i];
    if (plan.stage_of(static_cast<int>(i), replica) != stage) {
      const auto readers = plan.readers(static_cast<int>(i), stage, replica);
      if (!readers.empty() && layers[static_cast<std::size_t>(readers.front())].group == group) arrived_.push_back(i);
    }
    if (layer.group != group) continue;
    members_.push_back(i);
    kernels_[i] = make_kernel(layer, grid.rank());
    Bound& bound = bound_[i];
    bound.y = layer->at.y.owned(grid.rank());
    for (const auto& dx : layer->at.dx) bound.dx.push_back(dx.owned(grid.rank()));
    for (const int input : layer.inputs)
      if (plan.readers(input, stage, replica).back() == static_cast<int>(i) &&
          !plan.needs_output(input, stage, replica))
        bound.done.push_back(input);
    for (const int reader : plan.readers(static_cast<int>(i), stage, replica))
      if (layers[static_cast<std::size_t>(reader)].recompute) bound.readers.push_back(reader);
  }
}

void LayerGroup::add_problems(std::vector<ConvProblem>& problems) const {
  for (const std::size_t i : members_)
    for (const auto& problem : kernels_[i]->problems(plan_.workload.training, rank_.ahead()))
      if (std::find(problems.begin(), problems.end(), problem) == problems.end()) problems.push_back(problem);
}

Tensor LayerGroup::allocate(const Box& box, std::string_view names) const {
  return {plan_.workload.dtype, names, box, allocator_, MemoryClass::activations, Fill::none};
}

KernelCall LayerGroup::call(std::size_t i, Microbatch& m, const StepState& state) const {
  const auto& layer = parameters_.layer(i);
  return {.rank = rank_,
          .grid = grid_,
          .counter = counter_,
          .layer = layers_[i],
          .w = layer.compute,
          .dw = layer.gradient,
          .saved = m.saved[i],
          .target = m.batch.target,
          .seed = seed_,
          .step = state.step,
          .first_sample = m.first_sample,
          .share = m.share,
          .is_first_microbatch = !state.begun,
          .training = plan_.workload.training,
          .write = state.gradients ? Write::add : Write::over,
          .loss = &m.result.loss,
          .correct = &m.result.accuracy};
}

Tensor LayerGroup::convert_layout(const KernelCall& call, std::string_view role, const Tensor& from,
                                  const LayerPlan::Steps& steps) const {
  if (steps.empty()) return from;
  call.label(role);
  DistTensor tensor;
  tensor.layout = steps.front().from;
  tensor.local = from;
  return redistribute(tensor, steps, grid_, rank_.stream).local;
}

void LayerGroup::forward(Microbatch& m, StepState& state) const {
  for (const std::size_t i : members_) {
    Profile::layer(layers_[i].name);
    forward_layer(i, m, state, false);
    settle(i, m);
    go_on();
  }
  state.begun = true;
}

void LayerGroup::forward_layer(std::size_t i, Microbatch& m, const StepState& state, bool again) const {
  const auto& layer = layers_[i];
  KernelCall now = call(i, m, state);
  now.is_recompute = again;
  std::vector<Tensor> x;
  for (std::size_t j = 0; j < layer.inputs.size(); ++j) {
    const auto& from = m.outputs[static_cast<std::size_t>(layer.inputs[j])];
    x.push_back(convert_layout(now, "x", from, layer->redistribute_input[j]));
  }
  if (state.predict && i + 1 == layers_.size()) m.prediction = x[0];
  const bool input = layer.inputs.empty();
  const Tensor y = input ? m.batch.images : allocate(bound_[i].y, layer->shape.names());
  {
    const Timed timed(Profile::Part::compute);
    kernels_[i]->forward(now, x, y);
  }
  m.outputs[i] = convert_layout(now, "y", y, layer->redistribute_output);
  m.live[i] = true;
}

/// Releases what nobody will read any more, or what will be computed again.
void LayerGroup::settle(std::size_t i, Microbatch& m) const {
  const auto& layer = layers_[i];
  if (!plan_.workload.training || layer.recompute || !layer.has_backward()) {
    m.saved[i].reset();
    m.live[i] = false;
  }
  if (keep_) return;
  for (const int input : bound_[i].done) m.outputs[static_cast<std::size_t>(input)] = {};
}

/// What forward left of layer i, after all before it whose outputs it needs.
void LayerGroup::restore(std::size_t i, Microbatch& m, const StepState& state) const {
  const auto& inputs = layers_[i].inputs;
  for (const int input : inputs)
    if (const auto j = static_cast<std::size_t>(input);
        layers_[j].group == layers_[i].group && (!m.outputs[j] || (layers_[j].recompute && !m.live[j])))
      restore(j, m, state);
  m.outputs[i] = {};  // it may have been needed until it was sent
  forward_layer(i, m, state, true);
  for (const int input : inputs)
    if (const auto j = static_cast<std::size_t>(input); layers_[j].group == layers_[i].group) release_restored(j, m);
}

/// The output of a layer that was restored, if nobody waits for it any more; what kernels keep of it they hold themselves.
void LayerGroup::release_restored(std::size_t i, Microbatch& m) const {
  const auto& readers = bound_[i].readers;
  const auto waits = [&](int reader) { return !m.live[static_cast<std::size_t>(reader)]; };
  if (!keep_ && layers_[i].recompute && std::none_of(readers.begin(), readers.end(), waits)) m.outputs[i] = {};
}

void LayerGroup::release(std::size_t i, Microbatch& m) const {
  m.gradients[i] = {};
  m.dy[i] = {};
  m.saved[i].reset();
  if (!keep_) m.outputs[i] = {};
}

void LayerGroup::backward(Microbatch& m, StepState& state, const std::function<void(std::size_t)>& done) const {
  for (std::size_t at = members_.size(); at-- > 0;) {
    const std::size_t i = members_[at];
    const auto& layer = layers_[i];
    Profile::layer(layer.name);
    if (layer.has_backward()) {
      const KernelCall now = call(i, m, state);
      const Tensor dy = start_backward(i, m, now);
      if (layer.trains()) form_filter(i, now, dy);
      if (layer.needs_any_dx()) form_data(i, m, now, dy);
    }
    done(i);
    release(i, m);
    go_on();
  }
  release_arrived(m);
  release_batch(m);
  state.gradients = true;
}

void LayerGroup::release_batch(Microbatch& m) const {
  if (has_input()) m.batch.images = {};
  if (has_loss()) m.batch.target = {};
}

/// What came from other stages, of which layers that run once more needed it to here.
void LayerGroup::release_arrived(Microbatch& m) const {
  if (keep_) return;
  for (const std::size_t i : arrived_) m.outputs[i] = {};
}

void LayerGroup::backward_data(Microbatch& m, StepState& state) const {
  for (std::size_t at = members_.size(); at-- > 0;) {
    const std::size_t i = members_[at];
    const auto& layer = layers_[i];
    Profile::layer(layer.name);
    if (layer.has_backward()) {
      const KernelCall now = call(i, m, state);
      const Tensor dy = start_backward(i, m, now);
      if (layer.needs_any_dx()) form_data(i, m, now, dy);
      m.dy[i] = dy;
    }
    if (!layer.trains()) release(i, m);
    go_on();
  }
  release_arrived(m);
}

void LayerGroup::backward_filter(Microbatch& m, StepState& state, const std::function<void(std::size_t)>& done) const {
  for (std::size_t at = members_.size(); at-- > 0;) {
    const std::size_t i = members_[at];
    Profile::layer(layers_[i].name);
    if (layers_[i].trains()) form_filter(i, call(i, m, state), m.dy[i]);
    done(i);
    release(i, m);
    go_on();
  }
  release_batch(m);
  state.gradients = true;
}

/// dy in the layout that the layer takes; what can travel has started.
Tensor LayerGroup::start_backward(std::size_t i, Microbatch& m, const KernelCall& call) const {
  if (!m.live[i]) {
    restore(i, m, {call.step, true, true});
    release_restored(i, m);
  }
  Tensor dy;
  if (!layers_[i].op->is_loss()) dy = convert_layout(call, "dy", m.gradients[i], layers_[i]->redistribute_dy);
  m.gradients[i] = {};
  const Timed timed(Profile::Part::compute);
  kernels_[i]->start_backward(call, dy);
  return dy;
}

void LayerGroup::form_filter(std::size_t i, const KernelCall& call, const Tensor& dy) const {
  const Timed timed(Profile::Part::compute);
  if (call.write == Write::over && !kernels_[i]->supports_overwrite())
    for (const auto& dw : call.dw) dw.zero();
  kernels_[i]->backward_filter(call, dy);
}

void LayerGroup::form_data(std::size_t i, Microbatch& m, const KernelCall& call, const Tensor& dy) const {
  const auto& layer = layers_[i];
  std::vector<Tensor> dx;
  for (std::size_t j = 0; j < layer.inputs.size(); ++j)
    dx.push_back(allocate(bound_[i].dx[j], layer->input_shapes[j].names()));
  {
    const Timed timed(Profile::Part::compute);
    kernels_[i]->backward_data(call, dy, dx);
  }
  for (std::size_t j = 0; j < layer.inputs.size(); ++j) {
    if (!layer->needs_dx[j]) continue;
    const Tensor gradient = convert_layout(call, "dx", dx[j], layer->redistribute_dx[j]);
    auto& sum = m.gradients[static_cast<std::size_t>(layer.inputs[j])];
    if (sum)
      add(gradient, sum);
    else
      sum = gradient;
  }
}

}  // namespace partita
