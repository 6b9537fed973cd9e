#include "src/train/executor/executor.hpp"

#include "partita/base/error.hpp"
#include "src/device/profile.hpp"
#include "src/train/executor/batch_boxes.hpp"
#include "src/train/executor/captured_step.hpp"
#include "src/train/executor/inspector.hpp"
#include "src/train/executor/stage_exchange.hpp"
#include "src/train/executor/step_guard.hpp"
#include "src/train/executor/weight_update.hpp"

#include <cmath>
#include <limits>
#include <optional>

namespace partita {

namespace {

bool is_update(const Action& action) { return action.kind == Action::Kind::step; }

/// Points a member to an object of a function, until the function ends, also by an exception.
template <class T>
class Resetting {
 public:
  Resetting(T*& pointer, T* to) : pointer_(pointer) { pointer_ = to; }
  ~Resetting() { pointer_ = nullptr; }
  Resetting(const Resetting&) = delete;
  Resetting& operator=(const Resetting&) = delete;

 private:
  T*& pointer_;
};

/// Returns the position of the first update. All actions from there on are updates.
std::size_t first_update(const std::vector<Action>& actions) {
  const auto first = std::find_if(actions.begin(), actions.end(), is_update);
  require(std::all_of(first, actions.end(), is_update), "a step must end with its updates");
  return static_cast<std::size_t>(first - actions.begin());
}

}  // namespace

Executor::Executor(RunContext context)
    : context_(std::move(context)),
      plan_(context_.plan),
      target_(plan_.target()),
      rank_{context_.backend, context_.grid.world(), context_.overlap, context_.allocator->stream()},
      stage_(plan_.stage_of_rank(context_.world.rank())),
      inputs_(plan_.inputs()),
      program_(plan_, stage_),
      first_update_(first_update(program_.actions())),
      microbatches_(static_cast<std::size_t>(plan_.microbatches)),
      update_(std::make_unique<WeightUpdate>(context_, rank_.stream)) {
  require(!target_.weighted || context_.guard != nullptr || !plan_.workload.training,
          "the guard divides gradients by the mean of weights");
  staging_ = std::make_shared<Allocator>(context_.allocator->device().staging());
  const auto in_staging = [&](Index count) {
    return Tensor(DType::f64, "F", Box(Shape{{'F', count}}), staging_, MemoryClass::workspace);
  };
  step_number_ = in_staging(1);
  read_numbers_ = in_staging(squares_place() + 1);
  if (plan_.grids.size() > 1) stages_ = std::make_unique<StageExchange>(context_, rank_.stream);
  const auto runner = [&](const std::vector<LayerPlan>& layers, int replica) {
    return layers.empty() ? nullptr : std::make_unique<LayerRunner>(context_, rank_, layers, replica);
  };
  for (int replica = 0; replica < plan_.replicas(); ++replica) {
    const auto& full = replica == 0 ? plan_.layers : plan_.second_replica->layers;
    const auto& remainder = replica == 0 ? plan_.remainder_layers : plan_.second_replica->remainder_layers;
    replicas_.push_back({runner(full, replica), runner(remainder, replica), {}});
  }
}

Executor::~Executor() = default;

const LayerRunner& Executor::runner(const Action& action) const {
  const Runners& runners = replicas_[action.replica];
  return &plan_.layers_of(action.microbatch) == &runners.full->layers() ? *runners.full : *runners.remainder;
}

std::vector<ConvProblem> Executor::problems() const {
  std::vector<ConvProblem> all;
  for (const auto& runners : replicas_)
    for (const auto* runner : {runners.full.get(), runners.remainder.get()})
      if (runner != nullptr) runner->add_problems(all);
  return all;
}

bool Executor::reads_images(int microbatch) const {
  const auto mine = [&](int layer) { return plan_.stage_of(layer, plan_.replica_of(microbatch)) == stage_; };
  return std::any_of(inputs_.begin(), inputs_.end(), mine);
}

Box Executor::images(int microbatch, int input) const {
  return image_box(plan_, inputs_[input], microbatch, context_.world.rank());
}

Target Executor::target(int microbatch) const {
  const auto& loss = plan_.layers_of(microbatch).back();
  return loss.op->target(loss->input_shapes[0]);
}

Box Executor::target_box(int microbatch) const { return partita::target_box(plan_, microbatch, context_.world.rank()); }

Tensor Executor::output(std::size_t i, int microbatch) const {
  const auto& outputs = microbatches_[microbatch].outputs;
  return outputs.empty() ? Tensor() : outputs[i];
}

void Executor::keep_outputs(bool keep) {
  keep_ = keep;
  for (auto& runners : replicas_)
    for (auto* runner : {runners.full.get(), runners.remainder.get()})
      if (runner != nullptr) runner->keep_outputs(keep);
}

std::size_t Executor::actions() const { return program_.actions().size(); }

StepResult Executor::run(const Batch& batch, Index step, double rate) {
  require(plan_.microbatches == 1, "a plan with several microbatches needs a batch for each");
  return run([&](int) { return batch; }, step, rate);
}

std::vector<Tensor> Executor::predict(const Reader& read, Index step) {
  std::vector<Tensor> predictions(static_cast<std::size_t>(plan_.microbatches));
  const Resetting resetting(predictions_, &predictions);
  run(read, step, 0);
  return predictions;
}

StepResult Executor::run(const Reader& read, Index step, double rate, Ahead* ahead) {
  const Resetting resetting(ahead_, ahead);
  start_step(step);
  if (arrives(0)) ahead->arrival.expect([&] { return read(0); });
  switch (step_mode()) {
    case StepMode::live: compute_gradients(read, rate); break;
    case StepMode::capture: capture(read, rate); break;
    case StepMode::launch: launch(read); break;
  }
  if (ahead != nullptr) {
    ahead->meanwhile();
    Profile::layer("");
  }
  for (std::size_t i = first_update_; i < actions(); ++i) {
    if (inspector_ != nullptr) update_->show_sums(*inspector_);
    if (!may_update(program_.actions()[i - 1])) break;
    run_action(i, read, rate);
  }
  read_results();
  traveling_.clear();
  if (arrives(0)) ahead->arrival.end_step(ahead->sends());
  for (const StepOp& op : program_.last_ops()) run_op({}, op, read, rate);
  settle_result();
  update_->drop_statistics();
  if (!keep_)
    for (auto& m : microbatches_) m = {};
  if (record_ != nullptr) read_times();
  Profile::layer("");
  return result_;
}

/// Everything before the first update.
void Executor::compute_gradients(const Reader& read, double rate) {
  start_gradients();
  for (const StepOp& op : program_.first_ops()) run_op({}, op, read, rate);
  for (std::size_t i = 0; i < first_update_; ++i) run_action(i, read, rate);
  if (first_update_ < actions() && context_.guard != nullptr && inspector_ == nullptr)
    update_->add_squares(numbers(squares_place(), 1));
  if (arrives(0) && ahead_->sends()) ahead_->arrival.join();
  results_.device().copy(results_.data(), read_numbers_.data(), static_cast<std::size_t>(read_numbers_.bytes()),
                         rank_.stream);
}

/// Performs the operations of an action.
void Executor::run_action(std::size_t i, const Reader& read, double rate) {
  const Action& action = program_.actions()[i];
  const auto ops = program_.ops(i);
  auto& m = microbatches_[action.microbatch];
  if ((action.is_compute() || action.is_transfer()) && m.outputs.empty()) m = begin(action.microbatch);
  const std::size_t waited = wait(action, ops, read, rate);
  const Event start = record_ != nullptr ? clock_->mark() : Event();
  for (const StepOp& op : ops.subspan(waited)) run_op(action, op, read, rate);
  if (record_ != nullptr) marked_.push_back({action, start, clock_->mark()});
}

/// Waits for the device, and adds the times of this run's actions to the record.
void Executor::read_times() {
  clock_->finish();
  for (const auto& [action, start, end] : marked_) record_->push_back({action, clock_->time(start), clock_->time(end)});
}

/// Called before each update; `before` is the action before it. Asks the guard before the first update. Returns false,
/// and ends the step, if the weights must stay as they are.
bool Executor::may_update(const Action& before) {
  StepGuard* guard = context_.guard;
  if (before.kind == Action::Kind::step || (guard == nullptr && inspector_ == nullptr)) return true;
  if (inspector_ == nullptr) {
    read_results();
    const std::optional<double> no_weights;
    const auto verdict = guard->decide({.finite = std::isfinite(sums_[0]),
                                        .squares = squares_,
                                        .weight = !target_.weighted       ? no_weights
                                                  : context_.tells_loss() ? sums_[2]
                                                                          : 0});
    result_.gradient_norm = guard->norm();
    if (verdict == StepGuard::Verdict::update) {
      if (guard->factor() != 1) update_->scale(guard->factor());
      return true;
    }
    failed_ = verdict == StepGuard::Verdict::fail;
    if (guard->may_skip()) update_->restore_statistics();
  }
  update_->drop();
  result_.skipped = true;
  return false;
}

std::string Executor::inspect(const Reader& read, Index step) {
  Inspector inspector(plan_, context_.parameters, context_.backend, rank_.stream);
  const Resetting resetting(inspector_, &inspector);
  run(read, step, 0);
  return inspector.first(context_.control);
}

void Executor::start_step(Index step) {
  step_ = step;
  failed_ = false;
  marked_.clear();
  if (record_ != nullptr) clock_.emplace(context_.backend.device(), rank_.stream);
  result_ = {};
  sums_ = {};
  losses_.clear();
  traveling_.clear();
  for (auto& m : microbatches_) m = {};
  fill(step_number_, Shape{{'F', 1}}, [&](Index) { return static_cast<double>(step); });
  for (std::size_t replica = 0; replica < replicas_.size(); ++replica)
    replicas_[replica].states.assign(plan_.layers.size(), {.forward_ran = replica > 0, .has_dw = false});
}

/// Prepares the device for a step, and for one that the guard may skip.
void Executor::start_gradients() {
  results_ =
      Tensor(DType::f64, "F", Box(Shape{{'F', squares_place() + 2}}), context_.allocator, MemoryClass::workspace);
  from_host(step_number_, numbers(squares_place() + 1, 1), rank_.stream);
  if (context_.guard == nullptr || !plan_.workload.training) return;
  if (context_.guard->may_skip() && inspector_ == nullptr) update_->keep_statistics();
  const double scale = context_.guard->scale();
  update_->unscale(scale);
  for (auto& runners : replicas_)
    for (auto* runner : {runners.full.get(), runners.remainder.get()})
      if (runner != nullptr) runner->scale_loss(scale);
}

Microbatch Executor::begin(int microbatch) const {
  const Interval samples = plan_.samples(microbatch);
  const std::size_t layers = plan_.layers.size();
  Microbatch m;
  m.first_sample = samples.lo;
  m.share = share(microbatch);
  if (kept_ != nullptr) {
    m.first_place = kept_->first;
    m.kept = kept_->tensors[static_cast<std::size_t>(microbatch)];
  }
  m.saved.resize(layers);
  m.outputs.resize(layers);
  m.gradients.resize(layers);
  m.dy.resize(layers);
  m.result = numbers(target_.results() * microbatch, target_.results());
  m.step = numbers(squares_place() + 1, 1);
  return m;
}

/// Performs the operations with which an action waits for other stages. The action's time does not include them.
/// Returns their number.
std::size_t Executor::wait(const Action& action, std::span<const StepOp> ops, const Reader& read, double rate) {
  std::size_t count = 0;
  if (const auto& layers = plan_.layers; !ops.empty() && ops.front().layer < 0) {  // what it waits for is for its group
    const auto first =
        std::find_if(layers.begin(), layers.end(), [&](const LayerPlan& layer) { return layer.group == action.group; });
    if (first != layers.end()) Profile::current_layer() = first->name;
  }
  for (; count < ops.size() && is_wait(ops[count].kind); ++count) run_op(action, ops[count], read, rate);
  return count;
}

void Executor::run_op(const Action& action, const StepOp& op, const Reader& read, double rate) {
  using enum StepOp::Kind;
  const int j = action.microbatch;
  Microbatch& m = microbatches_[j];
  switch (op.kind) {
    case clear_statistics: return update_->clear_statistics(op.layer);
    case release_previous: return free_previous(j);
    case wait_inputs: return StageExchange::finish_inputs(m);
    case wait_gradients:
      if (stages_) stages_->finish_gradients(m);
      return;
    case wait_sent_gradients:
      if (stages_) stages_->finish();
      return;
    case read_batch:
      Profile::layer("data");
      if (reads_images(j) || reads_target(j)) m.batch = arrives(j) ? take_arrived() : bring(read(j));
      return;
    case release_images: m.batch.images[plan_.layers[op.layer].input] = {}; return;
    case release_target: m.batch.target = {}; return;
    case sum_gradients:
      update_->start(op.layer);
      rank_.overlap ? update_->progress() : update_->wait();
      return;
    case sum_zero_gradients: return update_->start_with_zeros(action.group);
    case finish_sums: Profile::layer("gradients"); return update_->finish();
    case add_replicas: return update_->add_replicas(action.group);
    case add_copies: return update_->add_copies(op.layer);
    case update: Profile::layer("optimizer"); return update_->step(action.group, {rate, updates()});
    case send_output:
    case receive_input:
    case send_gradient:
    case receive_gradient: Profile::layer("stages"); return stages_->run(op, action.replica, plan_.layers_of(j), m);
    case progress:
      LayerRunner::progress(m);
      if (stages_) stages_->progress(microbatches_);
      return;
    case finish_outputs:
      for (auto& each : microbatches_) StageExchange::finish_outputs(each);
      return;
    case share_loss: sums_ = stages_->share(sums_); return;
    default: return run_layer_op(action, op);
  }
}

void Executor::run_layer_op(const Action& action, const StepOp& op) {
  Microbatch& m = microbatches_[action.microbatch];
  const auto& layers = plan_.layers_of(action.microbatch);
  Profile::layer(layers[op.layer].name);
  StepOp now = op;
  now.data_follows = op.data_follows && inspector_ == nullptr;  // which looks at dw before dx is computed
  runner(action).run(now, m, replicas_[action.replica].states);
  if (inspector_ != nullptr) inspector_->look(op, m);
  if (op.kind == StepOp::Kind::forward && op.layer + 1 == static_cast<int>(layers.size())) {  // the loss
    if (predictions_ != nullptr) (*predictions_)[action.microbatch] = m.work.x[0];
    if (observer_) observer_(action.microbatch, m.work.x[0], m.batch.target);
    losses_.push_back(action.microbatch);
  }
}

/// The share of the step's samples that a microbatch has.
double Executor::share(int microbatch) const {
  return static_cast<double>(plan_.samples(microbatch).extent()) / static_cast<double>(plan_.workload.batch);
}

/// A part of the step's numbers.
Tensor Executor::numbers(Index first, Index count) const {
  return Tensor::view(results_, first, "F", Box(Shape{{'F', count}}));
}

/// Waits for the device, and adds up what the losses of the step have computed. The second call does nothing.
void Executor::read_results() {
  if (!results_) return;
  results_.device().finish(rank_.stream);
  const std::vector<double> numbers = read(read_numbers_, {});
  for (const int j : losses_) {
    const auto places = static_cast<double>(target(j).shape.volume());
    const double* of = numbers.data() + target_.results() * j;
    sums_[0] += of[0] * share(j);
    sums_[1] += of[1] / places * share(j);
    if (!target_.weighted) continue;
    sums_[2] += of[2] * share(j);
    sums_[3] += of[3] / places * share(j);
  }
  squares_ = numbers[squares_place()];
  results_ = {};
}

/// Makes the result of the step from the sums of all stages.
void Executor::settle_result() {
  const auto mean = [](double sum, double of, double of_none) { return of == 0 ? of_none : sum / of; };
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  result_.weight = target_.weighted ? sums_[2] : 1;
  result_.counted = target_.weighted ? sums_[3] : 1;
  result_.loss = mean(sums_[0], result_.weight, 0);
  result_.accuracy = target_.labels ? mean(sums_[1], result_.counted, nan) : nan;
}

/// True if a microbatch may come during the step before.
bool Executor::arrives(int microbatch) const {
  return ahead_ != nullptr && microbatch == 0 && (reads_images() || reads_target());
}

/// Returns the first microbatch, and lets that of the next step travel.
Batch Executor::take_arrived() {
  Batch batch = ahead_->arrival.take();
  if (ahead_->sends()) {
    ahead_->arrival.send(ahead_->next);
    traveling_.insert(traveling_.end(), ahead_->next.images.begin(), ahead_->next.images.end());
    traveling_.push_back(ahead_->next.target);
  }
  return batch;
}

/// Brings what the CPU holds of a batch to the device.
Batch Executor::bring(const Batch& batch) {
  return batch.each([this](const Tensor& tensor) { return bring(tensor); });
}

Tensor Executor::bring(const Tensor& tensor) {
  Device& device = context_.allocator->device();
  if (!tensor || &tensor.device() == &device || device.host()) return tensor;
  const Tensor there(tensor.dtype(), tensor.names(), tensor.box(), context_.allocator, MemoryClass::activations,
                     Fill::none);
  from_host(tensor, there, rank_.stream);
  traveling_.push_back(tensor);
  return there;
}

/// The number of updates before this step.
Index Executor::updates() const { return step_ - (context_.guard == nullptr ? 0 : context_.guard->state().skipped()); }

/// Frees the tensors of the previous microbatch in an evaluation, which has no backward that would free them.
void Executor::free_previous(int microbatch) {
  if (microbatch == 0) return;
  Microbatch& previous = microbatches_[static_cast<std::size_t>(microbatch) - 1];
  StageExchange::finish_outputs(previous);
  if (!keep_) previous = {};
}

}  // namespace partita
