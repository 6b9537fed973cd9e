#include "partita/train/executor.hpp"

#include "partita/base/error.hpp"
#include "partita/base/profile.hpp"
#include "partita/tensor/redistribute.hpp"
#include "weight_update.hpp"

#include <algorithm>

namespace partita {

namespace {

void profile_layer(std::string_view layer) {
  if (Profile* profile = Profile::current()) profile->set_layer(layer);
}

}  // namespace

Executor::Executor(const Plan& plan, const ProcessGrid& grid, Backend& backend, Parameters& parameters,
                   TrafficCounter& counter, const std::shared_ptr<Allocator>& allocator, std::uint64_t seed,
                   bool overlap)
    : plan_(plan),
      grid_(grid),
      parameters_(parameters),
      counter_(counter),
      allocator_(allocator),
      rank_{backend, grid.world(), overlap, {}},
      seed_(seed),
      saved_(plan.layers.size()),
      live_(plan.layers.size(), false),
      outputs_(plan.layers.size()),
      gradients_(plan.layers.size()),
      update_(std::make_unique<WeightUpdate>(plan, grid, parameters, counter, rank_.stream)) {
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    const auto& layer = plan.layers[i];
    kernels_.push_back(make_kernel(layer, grid.rank()));
    Bound& bound = bound_.emplace_back(Bound{layer.at.y.owned(grid.rank()), {}, {}, {}});
    for (const auto& dx : layer.at.dx) bound.dx.push_back(dx.owned(grid.rank()));
    for (const int input : layer.inputs)
      if (plan.readers(input).back() == static_cast<int>(i) && !plan.needs_output(input)) bound.done.push_back(input);
    for (const int reader : plan.readers(static_cast<int>(i)))
      if (plan.layers[static_cast<std::size_t>(reader)].recompute) bound.readers.push_back(reader);
  }
}

Executor::~Executor() = default;

std::vector<ConvProblem> Executor::problems() const {
  std::vector<ConvProblem> all;
  for (const auto& kernel : kernels_)
    for (const auto& problem : kernel->problems(plan_.workload.training, rank_.ahead()))
      if (std::find(all.begin(), all.end(), problem) == all.end()) all.push_back(problem);
  return all;
}

Box Executor::images() const { return plan_.layers.front().y.owned(grid_.rank()); }
Target Executor::target() const { return plan_.layers.back().op->target(plan_.layers.back().input_shapes[0]); }
Box Executor::target_box() const { return plan_.layers.back().at.x[0].onto(target().shape).owned(grid_.rank()); }

Tensor Executor::allocate(const Box& box, std::string_view names) const {
  return {plan_.workload.dtype, names, box, allocator_, MemoryClass::activations, Fill::none};
}

KernelCall Executor::call(std::size_t i, const Batch& batch, Index step) {
  const auto& layer = parameters_.layer(i);
  return {.rank = rank_,
          .grid = grid_,
          .counter = counter_,
          .layer = plan_.layers[i],
          .w = layer.compute,
          .dw = layer.gradient,
          .saved = saved_[i],
          .target = batch.target,
          .seed = seed_,
          .step = step,
          .training = plan_.workload.training,
          .write = Write::over,  // of one microbatch
          .loss = &result_.loss,
          .correct = &result_.accuracy};
}

Tensor Executor::convert_layout(const KernelCall& call, std::string_view role, const Tensor& from,
                                const LayerPlan::Steps& steps) const {
  if (steps.empty()) return from;
  call.label(role);
  DistTensor tensor;
  tensor.layout = steps.front().from;
  tensor.local = from;
  return redistribute(tensor, steps, grid_, rank_.stream).local;
}

StepResult Executor::run(const Batch& batch, Index step, double rate) {
  for (const auto& action : plan_.schedule.stages.at(0)) {
    require(action.group == 0 && action.microbatch == 0, "the schedule has one group of layers and one microbatch");
    switch (action.kind) {
      case Action::Kind::forward: forward(batch, step); break;
      case Action::Kind::backward: backward(batch, step); break;
      case Action::Kind::reduce:
        profile_layer("gradients");
        update_->finish();
        break;
      case Action::Kind::step:
        profile_layer("optimizer");
        update_->step({rate, step});
        break;
    }
  }
  if (!keep_) outputs_.assign(outputs_.size(), {});
  for (auto& saved : saved_) saved.reset();
  profile_layer("");
  return result_;
}

void Executor::forward(const Batch& batch, Index step) {
  for (std::size_t i = 0; i < plan_.layers.size(); ++i) {
    profile_layer(plan_.layers[i].name);
    forward_layer(i, batch, step, false);
    settle(i);
  }
}

void Executor::forward_layer(std::size_t i, const Batch& batch, Index step, bool again) {
  const auto& layer = plan_.layers[i];
  KernelCall now = call(i, batch, step);
  now.again = again;
  std::vector<Tensor> x;
  for (std::size_t j = 0; j < layer.inputs.size(); ++j) {
    const auto& from = outputs_[static_cast<std::size_t>(layer.inputs[j])];
    x.push_back(convert_layout(now, "x", from, layer.arrive[j]));
  }
  const bool input = layer.inputs.empty();
  const Tensor y = input ? batch.images : allocate(bound_[i].y, layer.shape.names());
  {
    const Timed timed(Profile::Part::compute);
    kernels_[i]->forward(now, x, y);
  }
  outputs_[i] = convert_layout(now, "y", y, layer.finish);
  live_[i] = true;
}

/// Releases what nobody will read any more, or what will be computed again.
void Executor::settle(std::size_t i) {
  const auto& layer = plan_.layers[i];
  if (!plan_.workload.training || layer.recompute || !layer.has_backward()) {
    saved_[i].reset();
    live_[i] = false;
  }
  if (keep_) return;
  for (const int input : bound_[i].done) outputs_[static_cast<std::size_t>(input)] = {};
}

/// What forward left of layer i, after all before it whose outputs it needs.
void Executor::restore(std::size_t i, const Batch& batch, Index step) {
  for (const int input : plan_.layers[i].inputs)
    if (const auto j = static_cast<std::size_t>(input); !outputs_[j] || (plan_.layers[j].recompute && !live_[j]))
      restore(j, batch, step);
  forward_layer(i, batch, step, true);
}

/// Of what was restored, the outputs that nobody waits for any more; what kernels keep of them they hold themselves.
void Executor::release_restored() {
  if (keep_) return;
  for (std::size_t i = 0; i < plan_.layers.size(); ++i) {
    const auto& readers = bound_[i].readers;
    const auto waits = [&](int reader) { return !live_[static_cast<std::size_t>(reader)]; };
    if (plan_.layers[i].recompute && std::none_of(readers.begin(), readers.end(), waits)) outputs_[i] = {};
  }
}

void Executor::backward(const Batch& batch, Index step) {
  for (std::size_t i = plan_.layers.size(); i-- > 0;) {
    profile_layer(plan_.layers[i].name);
    backward_layer(i, batch, step);
    update_->start(static_cast<int>(i));
    rank_.overlap ? update_->progress() : update_->finish();
    gradients_[i] = {};
    saved_[i].reset();
    if (!keep_) outputs_[i] = {};
  }
}

void Executor::backward_filter(std::size_t i, const KernelCall& call, const Tensor& dy) {
  if (call.write == Write::over && !kernels_[i]->heeds_write())
    for (const auto& dw : call.dw) dw.zero();
  kernels_[i]->backward_filter(call, dy);
}

void Executor::backward_layer(std::size_t i, const Batch& batch, Index step) {
  const auto& layer = plan_.layers[i];
  const bool trains = layer.trains(), needs_dx = layer.needs_any_dx();
  if (!trains && !needs_dx) return;
  if (!live_[i]) {
    restore(i, batch, step);
    release_restored();
  }
  const KernelCall now = call(i, batch, step);
  Tensor dy;
  if (!layer.op->is_loss()) dy = convert_layout(now, "dy", gradients_[i], layer.finish_back);
  gradients_[i] = {};
  {
    const Timed timed(Profile::Part::compute);
    kernels_[i]->start_backward(now, dy);
    if (trains) backward_filter(i, now, dy);
  }
  if (!needs_dx) return;
  std::vector<Tensor> dx;
  for (std::size_t j = 0; j < layer.inputs.size(); ++j)
    dx.push_back(allocate(bound_[i].dx[j], layer.input_shapes[j].names()));
  {
    const Timed timed(Profile::Part::compute);
    kernels_[i]->backward_data(now, dy, dx);
  }
  for (std::size_t j = 0; j < layer.inputs.size(); ++j) {
    if (!layer.needs_dx[j]) continue;
    const Tensor gradient = convert_layout(now, "dx", dx[j], layer.leave[j]);
    auto& sum = gradients_[static_cast<std::size_t>(layer.inputs[j])];
    if (sum)
      add(gradient, sum);
    else
      sum = gradient;
  }
}

}  // namespace partita
