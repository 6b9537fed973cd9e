#include "partita/train/executor.hpp"

#include "partita/base/error.hpp"
#include "partita/base/profile.hpp"
#include "stage_exchange.hpp"
#include "weight_update.hpp"

#include <chrono>

namespace partita {

namespace {

void profile_layer(std::string_view layer) {
  if (Profile* profile = Profile::current()) profile->set_layer(layer);
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

Executor::Executor(const Plan& plan, const ProcessGrid& grid, Communicator& world, Backend& backend,
                   Parameters& parameters, TrafficCounter& counter, const std::shared_ptr<Allocator>& allocator,
                   std::uint64_t seed, bool overlap)
    : plan_(plan),
      grid_(grid),
      rank_{backend, grid.world(), overlap, {}},
      microbatches_(static_cast<std::size_t>(plan.microbatches)),
      update_(std::make_unique<WeightUpdate>(plan, plan.stage_of_rank(world.rank()), grid, parameters, counter,
                                             rank_.stream)) {
  if (plan.grids.size() > 1)
    stages_ = std::make_unique<StageExchange>(plan, world, grid, counter, allocator, rank_.stream);
  const int stage = plan.stage_of_rank(world.rank());
  for (const auto* layers : {&plan.layers, &plan.smaller})
    if (!layers->empty())
      groups_.push_back(
          std::make_unique<LayerGroup>(plan, *layers, stage, grid, rank_, parameters, counter, allocator, seed));
}

Executor::~Executor() = default;

const LayerGroup& Executor::group(int microbatch) const {
  const bool smaller = &plan_.layers_of(microbatch) == &plan_.smaller;
  return *groups_[smaller ? 1 : 0];
}

std::vector<ConvProblem> Executor::problems() const {
  std::vector<ConvProblem> all;
  for (const auto& group : groups_) group->add_problems(all);
  return all;
}

Box Executor::images(int microbatch) const {
  const auto& input = plan_.layers_of(microbatch).front();
  return reads_images() ? input.y.owned(grid_.rank()) : Box(input.shape.dims());
}

Target Executor::target(int microbatch) const {
  const auto& loss = plan_.layers_of(microbatch).back();
  return loss.op->target(loss.input_shapes[0]);
}

Box Executor::target_box(int microbatch) const {
  const Shape shape = target(microbatch).shape;
  if (!reads_target()) return Box(shape.dims());
  return plan_.layers_of(microbatch).back().at.x[0].onto(shape).owned(grid_.rank());
}

Tensor Executor::output(std::size_t i, int microbatch) const {
  const auto& outputs = microbatches_[static_cast<std::size_t>(microbatch)].outputs;
  return outputs.empty() ? Tensor() : outputs[i];
}

void Executor::keep_outputs(bool keep) {
  keep_ = keep;
  for (auto& group : groups_) group->keep_outputs(keep);
}

const std::vector<Action>& Executor::list() const {
  const int stage = plan_.stage_of_rank(grid_.grid().first_rank() + grid_.rank());
  return plan_.schedule.stages[static_cast<std::size_t>(stage)];
}

std::size_t Executor::actions() const { return list().size(); }

StepResult Executor::run(const Batch& batch, Index step, double rate) {
  require(plan_.microbatches == 1, "one batch is all of the step");
  return run([&](int) { return batch; }, step, rate);
}

StepResult Executor::run(const Reader& read, Index step, double rate) {
  state_ = {.step = step};
  result_ = {};
  filters_ = 0;
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
  profile_layer("");
  return result_;
}

void Executor::run_forward(int j, const Reader& read) {
  Microbatch& m = microbatches_[static_cast<std::size_t>(j)];
  if (!plan_.workload.training && !keep_ && j > 0) microbatches_[static_cast<std::size_t>(j) - 1] = {};  // no backward
  profile_layer("data");
  if (m.outputs.empty()) m = begin(j);
  if (reads_images() || reads_target()) m.batch = read(j);
  group(j).forward(m, state_);
  if (!reads_target()) return;
  result_.loss += m.result.loss * m.share;
  result_.accuracy += m.result.accuracy * m.share;
}

Microbatch Executor::begin(int j) const {
  const Interval samples = plan_.samples(j);
  return group(j).begin(samples.lo, static_cast<double>(samples.extent()) / static_cast<double>(plan_.workload.batch));
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
  const auto done = [this](std::size_t layer) { reduce_layer(layer); };
  switch (action.kind) {
    case forward: return run_forward(j, read);
    case backward: ++filters_; return group(j).backward(m, state_, done);
    case backward_data: return group(j).backward_data(m, state_);
    case backward_filter: ++filters_; return group(j).backward_filter(m, state_, done);
    case reduce: profile_layer("gradients"); return update_->finish();
    case step: profile_layer("optimizer"); return update_->step({rate, state_.step});
    case recompute: broken("layers that run once more do so in their backward");
    default:  // a transfer
      profile_layer("stages");
      if (m.outputs.empty()) m = begin(j);
      stages_->perform(action, plan_.layers_of(j), m);
  }
}

/// A bucket's sum starts when the last microbatch has formed the last of its gradients.
void Executor::reduce_layer(std::size_t layer) {
  if (filters_ < plan_.microbatches) return;
  update_->start(static_cast<int>(layer));
  rank_.overlap ? update_->progress() : update_->finish();
}

}  // namespace partita
