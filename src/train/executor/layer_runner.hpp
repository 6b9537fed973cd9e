#pragma once

#include "partita/tensor/exchange.hpp"
#include "partita/tensor/redistribute.hpp"
#include "partita/train/batch.hpp"
#include "partita/train/kernels/kernel.hpp"
#include "src/train/executor/parameters.hpp"
#include "strategies/plan/step.hpp"

#include <deque>
#include <map>
#include <memory>
#include <vector>

namespace partita {

class StepGuard;

/// A tensor in transfer from or to another stage.
struct Crossing {
  int layer = 0;  ///< the layer that computed it
  Tensor tensor;
  Exchange exchange;
};

/// The tensors of one microbatch between the operations of a step. Vectors are indexed by layer.
struct Microbatch {
  Index first_sample = 0;        ///< index in the step's batch
  double share = 1;              ///< number of its samples / number of the step's samples
  Index first_place = 0;         ///< KernelCall::first_place
  std::span<const Tensor> kept;  ///< by layer: KernelCall::kept; empty but in a Generator
  Batch batch;
  std::vector<std::unique_ptr<Saved>> saved;
  std::vector<Tensor> outputs, gradients;  ///< outputs, and gradients of outputs
  std::vector<Tensor> dy;                  ///< held from redistribute_dy until dw is computed
  /// The work tensors of one pass of one layer, until its release_work.
  struct Work {
    std::vector<Tensor> x, dx;
    Tensor y;
  };
  Work work;
  /// The weights of one layer that rest in shards, and their gradients, while they travel.
  struct Shards {
    std::deque<std::vector<Redistribution>> gathers;  ///< what was started and not waited for, in order
    std::vector<Tensor> parts;                        ///< from backward_filter until they are scattered
    std::vector<Redistribution> scatters;
  };
  std::map<int, Shards> shards;              ///< by layer
  std::vector<Crossing> arriving, sent;      ///< outputs from and to other stages
  std::vector<Crossing> arriving_gradients;  ///< gradients of outputs of this stage
  Tensor result;  ///< f64 numbers: the loss, the number of right predictions, ... (KernelCall::result)
  Tensor step;    ///< one f64 number: KernelCall::step
};

/// What a rank keeps of sequences that are computed in several passes (Generator).
struct KeptPlaces {
  Index first = 0;                           ///< the first place of the present pass
  std::vector<std::vector<Tensor>> tensors;  ///< by microbatch and layer; without memory where nothing is kept
};

/// Everything that a rank needs to run a plan.
/// @pre Everything that a member refers to outlives the users of the context.
struct RunContext {
  const Plan& plan;
  const ProcessGrid& grid;           ///< grid of the rank's stage
  const ProcessGrid& gradient_grid;  ///< the same grid, with communicators that sum gradients; may be `grid` itself
  Communicator& world;               ///< the ranks of all stages
  Communicator& control;             ///< the same ranks, for numbers of the CPU; `world` itself if tensors lie there
  Communicator*
      replica_pair;  ///< this rank and the one with the other replica of its weights; null if there is one replica
  /// By bucket: this rank and the one with the other copy of its table; empty, or null for a bucket without that.
  std::span<const std::shared_ptr<Communicator>> copy_pairs;
  Backend& backend;
  Parameters& parameters;
  TrafficCounter& counter;
  std::shared_ptr<Allocator> allocator;  ///< of tensors; the rank computes on its stream
  std::uint64_t seed = 0;
  bool overlap = true;         ///< compute while messages travel
  StepGuard* guard = nullptr;  ///< decides whether a step updates the weights; null: always
  bool graphs = false;         ///< launch steps that repeat themselves as graphs of the device; needs a guard
  /// True for one rank of each stage that runs the loss: it speaks for all of them.
  bool tells_loss() const {
    return grid.rank() == 0 && plan.replica_on(plan.layers.back().group, plan.stage_of_rank(world.rank())) >= 0;
  }
};

/// Runs the operations of a stage's layers on one rank. A plan with microbatches of two sizes has one runner per size.
class LayerRunner {
 public:
  /// The state of a layer in the current step, over all microbatches so far.
  struct LayerState {
    bool forward_ran = false;
    bool has_dw = false;  ///< true if dw exists, so that later gradients are added to it
  };

  /// `layers` are all layers of the plan for one replica and one size of microbatch.
  LayerRunner(const RunContext& context, const RankContext& rank, const std::vector<LayerPlan>& layers, int replica);

  const std::vector<LayerPlan>& layers() const { return layers_; }
  /// Adds the local convolutions that the layers run to `problems`, each once.
  void add_problems(std::vector<ConvProblem>& problems) const;
  /// Keeps all outputs, for tests and inspection.
  void keep_outputs(bool keep) { keep_ = keep; }
  /// Multiplies the gradients of the loss by `scale` from now on.
  void scale_loss(double scale) { loss_scale_ = scale; }

  /// Runs one operation of a layer: forward, a part of backward, a redistribution, a release.
  void run(const StepOp& op, Microbatch& m, std::vector<LayerState>& states) const;
  /// Advances gathered weights and scattered gradients without waiting.
  static void progress(Microbatch& m);

 private:
  bool fused(std::size_t i) const;
  bool forwards_gradient(std::size_t i) const;
  KernelCall call(std::size_t i, Microbatch& m, const LayerState& state) const;
  Tensor allocate(const Box& box, std::string_view names) const;
  Tensor convert_layout(std::size_t i, std::string_view role, const Tensor& from, const LayerPlan::Steps& steps) const;
  void run_forward(std::size_t i, bool recompute, Microbatch& m, LayerState& state) const;
  void run_backward_filter(const StepOp& op, Microbatch& m, std::vector<LayerState>& states) const;
  void run_backward_data(std::size_t i, Microbatch& m, const LayerState& state) const;
  void add_gradient(const StepOp& op, Microbatch& m) const;
  void add_part(const Tensor& part, const Tensor& sum, const LayerState& state) const;
  void set_has_dw(std::size_t i, std::vector<LayerState>& states) const;
  void gather_weights(std::size_t i, Microbatch& m) const;
  void finish_gather(std::size_t i, Microbatch& m) const;
  void release_gathered(std::size_t i) const;
  void scatter_gradients(std::size_t i, Microbatch& m, const LayerState& state) const;
  void add_gradients(std::size_t i, Microbatch& m, std::vector<LayerState>& states) const;
  Redistribution start(const Layout& layout, const Tensor& from, const LayerPlan::Steps& steps) const;

  const RunContext& context_;
  const RankContext& rank_;
  const std::vector<LayerPlan>& layers_;
  /// The rank's boxes of the tensors that a layer computes.
  struct Boxes {
    Box y;
    std::vector<Box> dx;
  };
  std::vector<Boxes> boxes_;                      // by layer; set for layers that the stage runs
  std::vector<std::unique_ptr<Kernel>> kernels_;  // by layer; null for layers that the stage does not run
  bool keep_ = false;
  double loss_scale_ = 1;
};

}  // namespace partita
