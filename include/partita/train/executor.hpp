#pragma once

#include "partita/train/kernel.hpp"
#include "partita/train/parameters.hpp"

#include <memory>
#include <vector>

namespace partita {

class WeightUpdate;

/// What one rank brings to a step.
struct Batch {
  Tensor images;  ///< the box of the input layer's output that the rank owns
  Tensor target;  ///< the box of Executor::target: labels (i32), or values in the dtype of the images
};

/// What one run of the schedule found.
struct StepResult {
  double loss = 0;      ///< mean over the global batch; the same number on every rank
  double accuracy = 0;  ///< fraction of right predictions; not a number where the target is values
};

/// Runs a plan on one rank: interprets the actions of its schedule.
class Executor {
 public:
  /// All references must outlive the executor.
  Executor(const Plan& plan, const ProcessGrid& grid, Backend& backend, Parameters& parameters, TrafficCounter& counter,
           const std::shared_ptr<Allocator>& allocator, std::uint64_t seed, bool overlap);
  ~Executor();

  /// One run of the schedule. `step` keys random numbers, `rate` is the learning rate.
  StepResult run(const Batch& batch, Index step, double rate);

  const Plan& plan() const { return plan_; }
  /// The local convolutions that this rank will run, each once.
  std::vector<ConvProblem> problems() const;
  /// The box of images that this rank brings.
  Box images() const;
  /// What the loss compares with, and the box of it that this rank brings.
  Target target() const;
  Box target_box() const;
  /// This rank's part of the output (LayerPlan::y) that layer `i` left in the last run, if it was kept (keep_outputs); for
  /// tests and inspection.
  const Tensor& output(std::size_t i) const { return outputs_[i]; }
  void keep_outputs(bool keep) { keep_ = keep; }

 private:
  KernelCall call(std::size_t i, const Batch& batch, Index step);
  void forward(const Batch& batch, Index step);
  void forward_layer(std::size_t i, const Batch& batch, Index step, bool again);
  void settle(std::size_t i);
  void restore(std::size_t i, const Batch& batch, Index step);
  void release_restored();
  void backward(const Batch& batch, Index step);
  void backward_filter(std::size_t i, const KernelCall& call, const Tensor& dy);
  void backward_layer(std::size_t i, const Batch& batch, Index step);
  Tensor allocate(const Box& box, std::string_view names) const;
  Tensor convert_layout(const KernelCall& call, std::string_view role, const Tensor& from,
                        const LayerPlan::Steps& steps) const;

  const Plan& plan_;
  const ProcessGrid& grid_;
  Parameters& parameters_;
  TrafficCounter& counter_;
  std::shared_ptr<Allocator> allocator_;
  RankContext rank_;
  std::uint64_t seed_;
  /// What the plan says of a layer, looked up once.
  struct Bound {
    Box y;
    std::vector<Box> dx;
    std::vector<int> done;     // inputs that nobody reads after its forward
    std::vector<int> readers;  // that run once more in backward
  };
  std::vector<Bound> bound_;  // by layer, as all that follows
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<std::unique_ptr<Saved>> saved_;  // from forward to backward
  std::vector<bool> live_;                     // what forward saved is there
  std::vector<Tensor> outputs_, gradients_;
  std::unique_ptr<WeightUpdate> update_;
  StepResult result_;
  bool keep_ = false;
};

}  // namespace partita
