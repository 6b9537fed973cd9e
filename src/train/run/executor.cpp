#include "partita/train/run/executor.hpp"

#include "partita/base/clock.hpp"
#include "partita/base/error.hpp"
#include "partita/base/profile.hpp"
#include "src/train/run/stage_exchange.hpp"
#include "src/train/run/weight_update.hpp"

namespace partita {

Executor::Executor(const Plan& plan, const ProcessGrid& grid, Communicator& world, Communicator* replica_pair,
                   Backend& backend, Parameters& parameters, TrafficCounter& counter,
                   const std::shared_ptr<Allocator>& allocator, std::uint64_t seed, bool overlap)
    : plan_(plan),
      grid_(grid),
      rank_{backend, grid.world(), overlap, {}},
      stage_(plan.stage_of_rank(world.rank())),
      microbatches_(static_cast<std::size_t>(plan.microbatches)),
      update_(std::make_unique<WeightUpdate>(plan, grid, replica_pair, parameters, counter, rank_.stream)) {
  if (plan.grids.size() > 1)
    stages_ = std::make_unique<StageExchange>(plan, world, grid, counter, allocator, rank_.stream);
  const auto bound = [&](const std::vector<LayerPlan>& layers, Copy copy) {
    return layers.empty()
               ? nullptr
               : std::make_unique<LayerGroup>(plan, layers, copy, grid, rank_, parameters, counter, allocator, seed);
  };
  for (int group = 0; group < static_cast<int>(plan.stage_of_group.size()); ++group)
    if (const int replica = plan.replica_on(group, stage_); replica >= 0) {
      const Copy copy{replica, group};
      const auto& layers = replica == 0 ? plan.layers : plan.second_replica->layers;
      const auto& smaller = replica == 0 ? plan.remainder_layers : plan.second_replica->remainder_layers;
      groups_[copy] = {bound(layers, copy), bound(smaller, copy), {}, 0};
    }
  if (!stages_) return;
  for (auto& [copy, local] : groups_)
    for (auto* group : {local.larger.get(), local.smaller.get()})
      if (group != nullptr) group->after_layer([this] { stages_->progress(microbatches_); });
}

Executor::~Executor() = default;

const LayerGroup& Executor::group(const Action& action) const {
  const Local& local = groups_.at(copy_of(action));
  return &plan_.layers_of(action.microbatch) == &local.larger->layers() ? *local.larger : *local.smaller;
}

std::vector<ConvProblem> Executor::problems() const {
  std::vector<ConvProblem> all;
  for (const auto& [copy, local] : groups_)
    for (const auto* group : {local.larger.get(), local.smaller.get()})
      if (group != nullptr) group->add_problems(all);
  return all;
}

Box Executor::images(int microbatch) const {
  const auto& input = plan_.layers_of(microbatch).front();
  return reads_images(microbatch) ? input->y.owned(grid_.rank()) : Box(input->shape.dims());
}

Target Executor::target(int microbatch) const {
  const auto& loss = plan_.layers_of(microbatch).back();
  return loss.op->target(loss->input_shapes[0]);
}

Box Executor::target_box(int microbatch) const {
  const Shape shape = target(microbatch).shape;
  if (!reads_target(microbatch)) return Box(shape.dims());
  return plan_.layers_of(microbatch).back()->at.x[0].onto(shape).owned(grid_.rank());
}

Tensor Executor::output(std::size_t i, int microbatch) const {
  const auto& outputs = microbatches_[static_cast<std::size_t>(microbatch)].outputs;
  return outputs.empty() ? Tensor() : outputs[i];
}

void Executor::keep_outputs(bool keep) {
  keep_ = keep;
  for (auto& [copy, local] : groups_)
    for (auto* group : {local.larger.get(), local.smaller.get()})
      if (group != nullptr) group->keep_outputs(keep);
}

const std::vector<Action>& Executor::list() const { return plan_.schedule.stages[static_cast<std::size_t>(stage_)]; }

std::size_t Executor::actions() const { return list().size(); }

StepResult Executor::run(const Batch& batch, Index step, double rate) {
  require(plan_.microbatches == 1, "one batch is all of the step");
  return run([&](int) { return batch; }, step, rate);
}

std::vector<Tensor> Executor::predict(const Reader& read, Index step) {
  std::vector<Tensor> predictions(static_cast<std::size_t>(plan_.microbatches));
  predictions_ = &predictions;
  run(read, step, 0);
  predictions_ = nullptr;
  return predictions;
}

StepResult Executor::run(const Reader& read, Index step, double rate) {
  step_ = step;
  for (auto& [copy, local] : groups_) {
    // The second replica's running statistics count from zero: what both find is added.
    local.state = {.step = step, .begun = copy.first > 0, .predict = predictions_ != nullptr};
    local.filters = 0;
    if (copy.first > 0) update_->clear_statistics(copy.second);
  }
  result_ = {};
  for (auto& m : microbatches_) m = {};
  for (const auto& action : list()) {
    wait_for(action);
    const double start = now();
    perform(action, read, rate);
    if (record_ != nullptr) record_->push_back({action, start, now()});
  }
  if (stages_) {
    for (auto& m : microbatches_) StageExchange::finish_outputs(m);
    result_ = stages_->share(result_);
  }
  if (!keep_)
    for (auto& m : microbatches_) m = {};
  Profile::layer("");
  return result_;
}

void Executor::run_forward(const Action& action, const Reader& read) {
  const int j = action.microbatch;
  Microbatch& m = microbatches_[static_cast<std::size_t>(j)];
  const bool first = copy_of(action) == groups_.lower_bound({action.replica, 0})->first;  // of the stage's groups
  if (!plan_.workload.training && !keep_ && j > 0 && first)
    microbatches_[static_cast<std::size_t>(j) - 1] = {};  // it has no backward
  Profile::layer("data");
  if (m.outputs.empty()) m = begin(j);
  if (first && (reads_images(j) || reads_target(j))) m.batch = read(j);
  group(action).forward(m, groups_.at(copy_of(action)).state);
  if (!group(action).has_loss()) return;
  if (predictions_ != nullptr) (*predictions_)[static_cast<std::size_t>(j)] = std::move(m.prediction);
  result_.loss += m.result.loss * m.share;
  result_.accuracy += m.result.accuracy * m.share;
}

Microbatch Executor::begin(int j) const {
  const Interval samples = plan_.samples(j);
  Microbatch m;
  m.first_sample = samples.lo;
  m.share = static_cast<double>(samples.extent()) / static_cast<double>(plan_.workload.batch);
  const std::size_t layers = plan_.layers.size();
  m.saved.resize(layers);
  m.live.resize(layers, false);
  m.outputs.resize(layers);
  m.gradients.resize(layers);
  m.dy.resize(layers);
  return m;
}

/// What an action needs of other stages; what was sent before it is done is let go.
void Executor::wait_for(const Action& action) {
  using enum Action::Kind;
  if (!stages_) return;
  const auto j = static_cast<std::size_t>(action.microbatch);
  if (action.kind == forward) {
    if (!plan_.workload.training && j > 0) StageExchange::finish_outputs(microbatches_[j - 1]);
    StageExchange::finish_inputs(microbatches_[j]);
  } else if (action.kind == backward || action.kind == backward_data) {
    StageExchange::finish_outputs(microbatches_[j]);
    stages_->finish_gradients(microbatches_[j]);
  } else if (action.kind == reduce) {
    stages_->finish();
  }
}

void Executor::perform(const Action& action, const Reader& read, double rate) {
  using enum Action::Kind;
  const int j = action.microbatch;
  Microbatch& m = microbatches_[static_cast<std::size_t>(j)];
  const auto done = [&](std::size_t layer) { reduce_layer(action, layer); };
  Local& local = groups_.at(copy_of(action));
  switch (action.kind) {
    case forward: return run_forward(action, read);
    case backward: ++local.filters; return group(action).backward(m, local.state, done);
    case backward_data: return group(action).backward_data(m, local.state);
    case backward_filter: ++local.filters; return group(action).backward_filter(m, local.state, done);
    case reduce: Profile::layer("gradients"); return reduce_group(action);
    case step: Profile::layer("optimizer"); return update_->step(action.group, {rate, step_});
    case recompute: broken("layers that run once more do so in their backward");
    default:  // a transfer
      Profile::layer("stages");
      if (m.outputs.empty()) m = begin(j);
      stages_->perform(action, plan_.layers_of(j), m);
  }
}

/// A bucket's sum starts when the last microbatch has formed the last of its gradients.
void Executor::reduce_layer(const Action& action, std::size_t layer) {
  if (groups_.at(copy_of(action)).filters < plan_.microbatches_of(action.replica)) return;
  update_->start(static_cast<int>(layer));
  rank_.overlap ? update_->progress() : update_->finish();
}

/// Ends the sums of a group's gradients, over its ranks and over both replicas. One that took no microbatch adds zeros.
void Executor::reduce_group(const Action& action) {
  if (plan_.microbatches_of(action.replica) == 0) update_->start_without(action.group);
  update_->finish();
  if (plan_.second_replica) update_->add_replicas(action.group);
}

}  // namespace partita
