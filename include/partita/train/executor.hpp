#pragma once

#include "partita/train/layer_group.hpp"

#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace partita {

class WeightUpdate;

/// Runs a plan on one rank: interprets the actions of its schedule.
class Executor {
 public:
  /// All references must outlive the executor.
  Executor(const Plan& plan, const ProcessGrid& grid, Backend& backend, Parameters& parameters, TrafficCounter& counter,
           const std::shared_ptr<Allocator>& allocator, std::uint64_t seed, bool overlap);
  ~Executor();

  /// Brings this rank's part of a microbatch, when its forward begins.
  using Reader = std::function<Batch(int microbatch)>;
  /// One run of the schedule. `step` keys random numbers, `rate` is the learning rate.
  StepResult run(const Reader& read, Index step, double rate);
  /// The same for a plan of one microbatch.
  StepResult run(const Batch& batch, Index step, double rate);

  const Plan& plan() const { return plan_; }
  /// The local convolutions that this rank will run, each once.
  std::vector<ConvProblem> problems() const;
  /// The box of images that this rank brings to a microbatch; N counts from its first sample.
  Box images(int microbatch = 0) const;
  /// What the loss of a microbatch compares with, and the box of it that this rank brings.
  Target target(int microbatch = 0) const;
  Box target_box(int microbatch = 0) const;
  /// This rank's part of the output (LayerPlan::y) that layer `i` left for a microbatch in the last run, if it was kept
  /// (keep_outputs); for tests and inspection.
  Tensor output(std::size_t i, int microbatch = 0) const;
  void keep_outputs(bool keep);

 private:
  const LayerGroup& group(int microbatch) const;
  void perform(const Action& action, const Reader& read, double rate);
  void reduce_layer(std::size_t layer);

  const Plan& plan_;
  const ProcessGrid& grid_;
  RankContext rank_;
  std::vector<std::unique_ptr<LayerGroup>>
      groups_;  // for the larger microbatches, and for the smaller where there are any
  std::vector<Microbatch> microbatches_;
  std::unique_ptr<WeightUpdate> update_;
  StepState state_;
  StepResult result_;
  int filters_ = 0;  // microbatches whose dw is formed
  bool keep_ = false;
};

}  // namespace partita
