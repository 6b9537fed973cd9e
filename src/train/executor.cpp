#include "partita/train/executor.hpp"

#include "partita/base/error.hpp"
#include "partita/base/profile.hpp"
#include "weight_update.hpp"

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
      rank_{backend, grid.world(), overlap, {}},
      microbatches_(static_cast<std::size_t>(plan.microbatches)),
      update_(std::make_unique<WeightUpdate>(plan, grid, parameters, counter, rank_.stream)) {
  for (const auto* layers : {&plan.layers, &plan.smaller})
    if (!layers->empty())
      groups_.push_back(std::make_unique<LayerGroup>(plan, *layers, grid, rank_, parameters, counter, allocator, seed));
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

Box Executor::images(int microbatch) const { return plan_.layers_of(microbatch).front().y.owned(grid_.rank()); }

Target Executor::target(int microbatch) const {
  const auto& loss = plan_.layers_of(microbatch).back();
  return loss.op->target(loss.input_shapes[0]);
}

Box Executor::target_box(int microbatch) const {
  const auto& loss = plan_.layers_of(microbatch).back();
  return loss.at.x[0].onto(target(microbatch).shape).owned(grid_.rank());
}

Tensor Executor::output(std::size_t i, int microbatch) const {
  const auto& outputs = microbatches_[static_cast<std::size_t>(microbatch)].outputs;
  return outputs.empty() ? Tensor() : outputs[i];
}

void Executor::keep_outputs(bool keep) {
  keep_ = keep;
  for (auto& group : groups_) group->keep_outputs(keep);
}

StepResult Executor::run(const Batch& batch, Index step, double rate) {
  require(plan_.microbatches == 1, "one batch is all of the step");
  return run([&](int) { return batch; }, step, rate);
}

StepResult Executor::run(const Reader& read, Index step, double rate) {
  state_ = {.step = step};
  result_ = {};
  filters_ = 0;
  for (const auto& action : plan_.schedule.stages.at(0)) perform(action, read, rate);
  if (!keep_)
    for (auto& m : microbatches_) m = {};
  profile_layer("");
  return result_;
}

void Executor::perform(const Action& action, const Reader& read, double rate) {
  using enum Action::Kind;
  const int j = action.microbatch;
  Microbatch& m = microbatches_[static_cast<std::size_t>(j)];
  const auto done = [this](std::size_t layer) { reduce_layer(layer); };
  switch (action.kind) {
    case forward: {
      const Interval samples = plan_.samples(j);
      profile_layer("data");
      m = group(j).begin(samples.lo, static_cast<double>(samples.extent()) / static_cast<double>(plan_.workload.batch),
                         read(j));
      group(j).forward(m, state_);
      result_.loss += m.result.loss * m.share;
      result_.accuracy += m.result.accuracy * m.share;
      if (!plan_.workload.training && !keep_) m = {};
      return;
    }
    case backward: ++filters_; return group(j).backward(m, state_, done);
    case backward_data: return group(j).backward_data(m, state_);
    case backward_filter: ++filters_; return group(j).backward_filter(m, state_, done);
    case reduce: profile_layer("gradients"); return update_->finish();
    case step: profile_layer("optimizer"); return update_->step({rate, state_.step});
    default: broken(fmt::format("the executor runs no {}", action.print()));
  }
}

/// A bucket's sum starts when the last microbatch has formed the last of its gradients.
void Executor::reduce_layer(std::size_t layer) {
  if (filters_ < plan_.microbatches) return;
  update_->start(static_cast<int>(layer));
  rank_.overlap ? update_->progress() : update_->finish();
}

}  // namespace partita
