#pragma once

#include "partita/tensor/exchange.hpp"
#include "partita/train/kernels/kernel.hpp"
#include "partita/train/run/parameters.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace partita {

/// What one rank brings to a microbatch.
struct Batch {
  Tensor images;  ///< the box of the input layer's output that the rank owns
  Tensor target;  ///< the box of the loss's target: labels (i32), or values in the dtype of the images
};

/// What one microbatch, or one step, found.
struct StepResult {
  double loss = 0;      ///< mean over the global batch; the same number on every rank
  double accuracy = 0;  ///< fraction of right predictions; not a number where the target is values
};

/// A tensor on its way from or to another stage.
struct Crossing {
  int layer = 0;  ///< that made it
  Tensor tensor;
  Exchange exchange;
};

/// One microbatch between its actions: what its forward left for its backward.
struct Microbatch {
  Index first_sample = 0;  ///< in the step's batch
  double share = 1;        ///< of the step's samples
  Batch batch;
  std::vector<std::unique_ptr<Saved>> saved;  // by layer, as all that follows
  std::vector<bool> live;                     // what forward saved is there
  std::vector<Tensor> outputs, gradients;     // of a layer's output
  std::vector<Tensor> dy;                     // kept from backward-data to backward-filter
  std::vector<Crossing> arriving, sent;       // outputs from and to other stages
  std::vector<Crossing> arriving_gradients;   // of own outputs
  Tensor prediction;                          // the loss's input, if StepState::predict
  StepResult result;
};

/// Where a step stands: what all its microbatches share.
struct StepState {
  Index step = 0;          ///< keys random numbers
  bool begun = false;      ///< a forward was run
  bool gradients = false;  ///< a dw was formed; others are added to it
  bool predict = false;    ///< keeps the loss's input as Microbatch::prediction
};

/// A replica and a group of its layers.
using Copy = std::pair<int, int>;

/// One group of a plan's layers on one rank: their kernels, and their passes for one microbatch. Of plans with microbatches of two
/// sizes there is one for each.
class LayerGroup {
 public:
  /// All references must outlive it. `layers` are all of the plan that the microbatches take, `grid` is the stage's.
  LayerGroup(const Plan& plan, const std::vector<LayerPlan>& layers, Copy copy, const ProcessGrid& grid,
             const RankContext& rank, Parameters& parameters, TrafficCounter& counter,
             const std::shared_ptr<Allocator>& allocator, std::uint64_t seed);

  const std::vector<LayerPlan>& layers() const { return layers_; }
  /// The local convolutions that it will run, added to `problems` where they are not there.
  void add_problems(std::vector<ConvProblem>& problems) const;
  /// Keeps all outputs; for tests and inspection.
  void keep_outputs(bool keep) { keep_ = keep; }
  /// Called after each layer of each pass: what travels between stages goes on.
  void after_layer(std::function<void()> call) { after_layer_ = std::move(call); }

  /// True if the group has the model's input, or its loss.
  bool has_input() const { return members_.front() == 0; }
  bool has_loss() const { return members_.back() + 1 == layers_.size(); }
  /// y of all layers, in order.
  void forward(Microbatch& m, StepState& state) const;
  /// dx and dw of all layers, last first. `done(i)` is called when layer i's are there.
  void backward(Microbatch& m, StepState& state, const std::function<void(std::size_t)>& done) const;
  /// The same in two halves: dx of all layers, then dw.
  void backward_data(Microbatch& m, StepState& state) const;
  void backward_filter(Microbatch& m, StepState& state, const std::function<void(std::size_t)>& done) const;

 private:
  KernelCall call(std::size_t i, Microbatch& m, const StepState& state) const;
  void forward_layer(std::size_t i, Microbatch& m, const StepState& state, bool again) const;
  void settle(std::size_t i, Microbatch& m) const;
  void restore(std::size_t i, Microbatch& m, const StepState& state) const;
  void release_restored(std::size_t i, Microbatch& m) const;
  Tensor start_backward(std::size_t i, Microbatch& m, const KernelCall& call) const;
  void form_filter(std::size_t i, const KernelCall& call, const Tensor& dy) const;
  void form_data(std::size_t i, Microbatch& m, const KernelCall& call, const Tensor& dy) const;
  void go_on() const {
    if (after_layer_) after_layer_();
  }
  void release(std::size_t i, Microbatch& m) const;
  void release_arrived(Microbatch& m) const;
  void release_batch(Microbatch& m) const;
  Tensor allocate(const Box& box, std::string_view names) const;
  Tensor convert_layout(const KernelCall& call, std::string_view role, const Tensor& from,
                        const LayerPlan::Steps& steps) const;

  const Plan& plan_;
  const std::vector<LayerPlan>& layers_;
  const ProcessGrid& grid_;
  const RankContext& rank_;
  Parameters& parameters_;
  TrafficCounter& counter_;
  std::shared_ptr<Allocator> allocator_;
  std::uint64_t seed_;
  /// What the plan says of a layer, looked up once.
  struct Bound {
    Box y;
    std::vector<Box> dx;
    std::vector<int> done;     // inputs that nobody reads after its forward
    std::vector<int> readers;  // that run once more in backward
  };
  std::vector<std::size_t> members_;  // the group's layers
  std::vector<std::size_t> arrived_;  // of other stages, that this group reads first
  std::vector<Bound> bound_;          // by layer; of members
  std::vector<std::unique_ptr<Kernel>> kernels_;
  bool keep_ = false;
  std::function<void()> after_layer_;
};

}  // namespace partita
