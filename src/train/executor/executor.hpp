#pragma once

#include "src/train/executor/arrival.hpp"
#include "src/train/executor/stage_exchange.hpp"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace partita {

struct OtherSource;
class Inspector;
class WeightUpdate;

/// Runs a plan on one rank: it performs the operations of its stage's StepProgram.
class Executor {
 public:
  explicit Executor(RunContext context);
  ~Executor();

  /// Returns this rank's part of a microbatch when its forward begins, or of the first one before the step: images of
  /// the inputs and the target of the loss that its stage runs. It lies in the memory of the CPU, where it stays as it
  /// is until the step ends, or, without graphs (RunContext::graphs), on the rank's device.
  using Reader = std::function<Batch(int microbatch)>;
  /// Runs the schedule once. `step` keys random numbers, `rate` is the learning rate. `ahead`: the batch of the
  /// next step travels to the device meanwhile, and that of this step may have come so; null: neither.
  StepResult run(const Reader& read, Index step, double rate, Ahead* ahead = nullptr);
  /// Runs a plan that has one microbatch.
  StepResult run(const Batch& batch, Index step, double rate);
  /// One run of an evaluation's schedule. Returns the input of the loss layer by microbatch; no tensor where this rank
  /// does not run the loss layer.
  std::vector<Tensor> predict(const Reader& read, Index step);
  /// True if the guard ended the last run because a number was not finite.
  bool failed() const { return failed_; }
  /// Repeats a step up to its update. Returns where a number that is not finite appeared first, e.g. "in the output of
  /// layer 'conv1' on rank 2"; "" if all numbers are finite. Collective: every rank of the world calls it.
  std::string inspect(const Reader& read, Index step);

  /// Called when the loss of a microbatch is known, on ranks that run the loss layer, with this rank's parts of the
  /// layer's input and of the target.
  using Observer = std::function<void(int microbatch, const Tensor& scores, const Tensor& target)>;
  /// Calls `observer` in every later run; {} calls nothing.
  void observe(Observer observer) { observer_ = std::move(observer); }

  /// Every later run computes the places from `kept->first` on, and keeps what later places need. Null: sequences are
  /// computed whole.
  /// @pre `kept` outlives these runs, which are evaluations.
  void keep_places(const KeptPlaces* kept) { kept_ = kept; }

  /// Adds the actions of every later run to `actions`. nullptr stops the recording. While it records, a device is
  /// waited for twice more in a run.
  void record(std::vector<TimedAction>* actions) { record_ = actions; }
  /// The clock by which the last recorded run was timed.
  const StreamClock& clock() const { return *clock_; }

  /// Returns the number of actions of one run on this rank.
  std::size_t actions() const;
  /// Returns how many of the steps so far were launched as a graph (RunContext::graphs).
  Index launched() const { return launched_; }

  const Plan& plan() const { return plan_; }
  /// Returns the local convolutions that this rank runs, each once.
  std::vector<ConvProblem> problems() const;
  /// The layers that receive samples, in the model's order.
  const std::vector<int>& inputs() const { return inputs_; }
  /// Return true if this rank reads images of some input, or targets, of a microbatch.
  bool reads_images(int microbatch = 0) const;
  bool reads_target(int microbatch = 0) const {
    return plan_.stage_of(static_cast<int>(plan_.layers.size()) - 1, plan_.replica_of(microbatch)) == stage_;
  }
  /// Returns the box of images that this rank reads of the input of that number for a microbatch; N counts from the
  /// microbatch's first sample. The box is empty on stages that do not run the input layer.
  Box images(int microbatch = 0, int input = 0) const;
  /// Returns the target of the loss of a microbatch.
  Target target(int microbatch = 0) const;
  /// Returns the box of the target that this rank reads; empty on stages that do not run the loss.
  Box target_box(int microbatch = 0) const;
  /// Returns this rank's part of layer `i`'s output (LayerBinding::y) for a microbatch of the last run, if it was kept
  /// (keep_outputs). For tests and inspection.
  Tensor output(std::size_t i, int microbatch = 0) const;
  void keep_outputs(bool keep);

 private:
  /// The runners of one replica, for microbatches of the two sizes; null if the stage does not run them.
  struct Runners {
    std::unique_ptr<LayerRunner> full, remainder;
    std::vector<LayerRunner::LayerState> states;  // by layer
  };
  const LayerRunner& runner(const Action& action) const;
  Microbatch begin(int microbatch) const;
  void start_step(Index step);
  void compute_gradients(const Reader& read, double rate);
  void start_gradients();
  void run_action(std::size_t i, const Reader& read, double rate);
  struct CapturedStep;
  enum class StepMode : std::uint8_t { live, capture, launch };  // ranks that can do more can do less, too
  StepMode step_mode();
  void capture(const Reader& read, double rate);
  void launch(const Reader& read);
  void launch_graph(std::span<const OtherSource> others);
  bool may_update(const Action& before);
  Index updates() const;
  bool arrives(int microbatch) const;
  Batch take_arrived();
  Batch staged(const Batch& batch, const CapturedStep& captured) const;
  Batch bring(const Batch& batch);
  Tensor bring(const Tensor& tensor);
  std::size_t wait(const Action& action, std::span<const StepOp> ops, const Reader& read, double rate);
  void run_op(const Action& action, const StepOp& op, const Reader& read, double rate);
  void run_layer_op(const Action& action, const StepOp& op);
  void free_previous(int microbatch);
  double share(int microbatch) const;
  Tensor numbers(Index first, Index count) const;
  Index squares_place() const { return target_.results() * Index{plan_.microbatches}; }
  void read_results();
  void settle_result();
  void read_times();

  RunContext context_;
  const Plan& plan_;
  Target target_;  // of the first microbatch
  RankContext rank_;
  int stage_;
  std::vector<int> inputs_;  // the layers that receive samples
  StepProgram program_;
  std::size_t first_update_;  // the action with which the updates begin
  std::vector<Runners> replicas_;
  std::vector<Microbatch> microbatches_;
  std::unique_ptr<WeightUpdate> update_;
  std::unique_ptr<StageExchange> stages_;  // null if there is one stage
  // f64 numbers on the device: for each microbatch those of the loss (KernelCall::result), then the sum of the squares
  // of gradients, and the number of the step.
  Tensor results_;
  std::shared_ptr<Allocator> staging_;  // memory of the CPU from which, and to which, copies can be captured
  Tensor step_number_;                  // there, from where a step copies it
  Tensor read_numbers_;                 // there, to where a step copies its numbers
  std::vector<Tensor> traveling_;       // on the CPU: what the present step copies to the device
  std::vector<int> losses_;             // the microbatches whose loss this rank has computed in this step, in order
  LossSums sums_{};                     // of the microbatches whose numbers were read
  StepResult result_;
  double squares_ = 0;  // the sum of the squares of this rank's part of the gradients
  Index step_ = 0, launched_ = 0;
  std::unique_ptr<CapturedStep> captured_;  // null if no step was captured
  Allocator::State start_;                  // of the allocator, when the last step started
  bool keep_ = false, failed_ = false;
  Ahead* ahead_ = nullptr;                      // of the present run
  Inspector* inspector_ = nullptr;              // while a step is repeated
  std::vector<Tensor>* predictions_ = nullptr;  // where predict() keeps them
  std::vector<TimedAction>* record_ = nullptr;
  /// An action of the present run, and when it started and ended.
  struct MarkedAction {
    Action action;
    Event start, end;
  };
  std::vector<MarkedAction> marked_;
  std::optional<StreamClock> clock_;  // of the present run, if it is recorded
  Observer observer_;
  const KeptPlaces* kept_ = nullptr;
};

}  // namespace partita
