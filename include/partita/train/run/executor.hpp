#pragma once

#include "partita/train/run/layer_runner.hpp"

#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace partita {

class StageExchange;
class WeightUpdate;

/// An action as one rank ran it, in seconds of its host's steady clock, without what it waited before it.
struct TimedAction {
  Action action;
  double start = 0, end = 0;
};

/// Runs a plan on one rank: carries out the operations of its stage's StepProgram.
class Executor {
 public:
  explicit Executor(RunContext context);
  ~Executor();

  /// Brings this rank's part of a microbatch, when its forward begins: images on the first stage, the target on the last.
  using Reader = std::function<Batch(int microbatch)>;
  /// One run of the schedule. `step` keys random numbers, `rate` is the learning rate.
  StepResult run(const Reader& read, Index step, double rate);
  /// The same for a plan of one microbatch.
  StepResult run(const Batch& batch, Index step, double rate);

  /// From here on the actions of every run are added to `actions`; nullptr: no longer.
  void record(std::vector<TimedAction>* actions) { record_ = actions; }

  /// Actions of one run on this rank.
  std::size_t actions() const;

  const Plan& plan() const { return plan_; }
  /// The local convolutions that this rank will run, each once.
  std::vector<ConvProblem> problems() const;
  /// True if this rank brings images, and targets.
  bool reads_images(int microbatch = 0) const { return plan_.stage_of(0, plan_.replica_of(microbatch)) == stage_; }
  bool reads_target(int microbatch = 0) const {
    return plan_.stage_of(static_cast<int>(plan_.layers.size()) - 1, plan_.replica_of(microbatch)) == stage_;
  }
  /// The box of images that this rank brings to a microbatch; N counts from its first sample. Empty on later stages, as the
  /// target's box on earlier ones.
  Box images(int microbatch = 0) const;
  /// What the loss of a microbatch compares with, and the box of it that this rank brings.
  Target target(int microbatch = 0) const;
  Box target_box(int microbatch = 0) const;
  /// This rank's part of the output (LayerPlan::y) that layer `i` left for a microbatch in the last run, if it was kept
  /// (keep_outputs); for tests and inspection.
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
  std::size_t wait(const Action& action, std::span<const StepOp> ops, const Reader& read, double rate);
  void perform(const Action& action, const StepOp& op, const Reader& read, double rate);
  void perform_on_layer(const Action& action, const StepOp& op);
  void free_previous(int microbatch);

  RunContext context_;
  const Plan& plan_;
  RankContext rank_;
  int stage_;
  StepProgram program_;
  std::vector<Runners> replicas_;
  std::vector<Microbatch> microbatches_;
  std::unique_ptr<WeightUpdate> update_;
  std::unique_ptr<StageExchange> stages_;  // null if there is one stage
  StepResult result_;
  Index step_ = 0;
  bool keep_ = false;
  std::vector<TimedAction>* record_ = nullptr;
};

}  // namespace partita
