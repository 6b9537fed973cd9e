#pragma once

#include "partita/base/optimizer.hpp"
#include "partita/layouts/redistribution.hpp"
#include "partita/model/model.hpp"
#include "partita/strategies/declare/strategy.hpp"
#include "partita/strategies/plan/gradient_bucket.hpp"
#include "partita/strategies/schedule/schedule.hpp"

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// The settings of a step that belong to neither the model nor the strategy.
struct Workload {
  Index batch = 1;  ///< global samples per step
  DType dtype = DType::f32;
  bool training = true;
  Optimizer optimizer;
};

/// Returns the element type in which weights are stored, summed over ranks and updated: f64 for f64, f32 for every
/// shorter type.
DType master_dtype(DType dtype);

/// The transfer of a layer's output from its stage to another stage, straight from rank to rank.
struct StageBoundary {
  int group = 0;  ///< the receiving group of layers: the first one of its stage that reads the output
  Layout from;    ///< layout of the layer's y without pending sums; the gradient returns in it
  Layout to;      ///< layout that the group's first reader needs; its gradient leaves as to.dual()
  std::vector<RedistributionStep> complete_sums;  ///< y -> from, on the layer's own grid

  /// Returns what a rank of the world sends and receives of y or, with `back`, of its gradient. Where blocks are
  /// replicated, each replica sends to the ranks with its coordinates, so that all send equally much.
  TransferPlan transfer(int rank, bool back) const;
};

/// The layouts of a layer and the redistributions between them. Layers with an equal binding share one object.
struct LayerBinding {
  std::vector<Shape> input_shapes;
  Shape shape;                      ///< shape of the output
  OperatorLayouts at;               ///< layouts in which the operator runs
  Layout y;                         ///< layout of the output for its readers; the gradient arrives as y.dual()
  std::vector<WeightSpec> weights;  ///< the weights, in the layouts at.w
  std::vector<bool> needs_dx;       ///< by input: true if a layer before it has weights to train
  using Steps = std::vector<RedistributionStep>;
  std::vector<Steps> redistribute_input;  ///< by input: the producer's y -> at.x
  Steps redistribute_output;              ///< at.y -> y
  Steps redistribute_dy;                  ///< y.dual() -> at.y.dual()
  std::vector<Steps> redistribute_dx;     ///< by input: at.dx -> the producer's y.dual()
  /// A weight at rest, which is its layout between the passes that use it: at.w, or cut over further axes. Then it is
  /// gathered before each use, and its gradient is scattered.
  struct Rest {
    Layout w, dw;           ///< the weight, and its gradient as it is summed over microbatches
    Steps gather, scatter;  ///< w -> at.w, and in training at.dw -> dw
    bool operator==(const Rest&) const = default;
  };
  std::vector<Rest> rest;          ///< by weight
  std::vector<std::string> notes;  ///< the keys of rules that were dropped, and why

  /// Returns true if the layer has weights to train.
  bool trains() const;
  /// Returns true if the gradient of some input is needed.
  bool needs_any_dx() const;
  /// Returns true if some weight is gathered before each use.
  bool gathers_weights() const;
  bool operator==(const LayerBinding&) const = default;
};

/// One bound layer: its place in the model and on the stages. `operator->` gives its binding. Equal layers share a
/// binding, because plans have hundreds of layers and few different ones.
struct LayerPlan {
  int group = 0;  ///< the group of layers that it belongs to
  std::string name;
  std::shared_ptr<const Operator> op;
  std::vector<int> inputs;
  int input = -1;  ///< for a layer without inputs, which receives samples: its number among these, from 0
  std::vector<StageBoundary> sends_to_stages;  ///< transfers to readers on other stages, by ascending group
  bool recompute = false;                      ///< backward runs its forward again, so that it keeps nothing until then
  bool in_place = false;                       ///< its output takes the memory of its input, which no other layer reads
  // Fusion. In conv -> relu, the convolution's `next_activation` is ReLU, and the relu is `fusible`. In norm -> relu it
  // is also `computed_by_producer`, since on every backend the norm computes it.
  std::optional<Activation> next_activation;  ///< of the layer after it, if that is `fusible`
  bool fusible = false;                       ///< an activation in place, which the layer before it may compute
  bool computed_by_producer = false;          ///< `fusible`, and the layer before computes it on every backend
  bool forwards_gradient = false;             ///< the gradient of each input is dy itself
  // In add(x, dropout(t)), the dropout runs in place. In its memory the addition finds t itself: it leaves out elements
  // as it reads them. In backward each of the two does its own part.
  int drops = -1;                   ///< of an addition: the number of that input; -1: none
  bool computed_by_reader = false;  ///< of the dropout
  // Readers of one output add their gradients up. In x -> norm, x -> add, the addition's comes first.
  bool adds_gradient = false;  ///< backward_data adds its dx to the gradient that other readers made, in one pass
  // A tied layer (Linear::tied_to). In the embedding's group the two share one table and one gradient. A layer of
  // another group, or whose gradient is summed over other axes, holds a copy: once a step the gradients of both copies
  // are added, so that both are updated alike.
  int table = -1;             ///< the embedding whose table is its first weight; -1: its weights are its own
  bool copies_table = false;  ///< it holds a copy of that table
  std::shared_ptr<const LayerBinding> binding;

  const LayerBinding* operator->() const { return binding.get(); }
  using Steps = LayerBinding::Steps;
  bool trains() const { return binding->trains(); }
  bool needs_any_dx() const { return binding->needs_any_dx(); }
  bool gathers_weights() const { return binding->gathers_weights(); }
  /// Returns true if the layer's kernels may read its weights in an action of a backward pass.
  bool reads_weights(Action::Kind backward) const;
  /// What is computed at once on every backend: of layers with one binding it decides the cost.
  struct Fusion {
    bool computed_by_producer = false, computed_by_reader = false, drops = false;
    bool forwards_gradient = false, adds_gradient = false;
    std::optional<Activation::Kind> next_activation;
    bool operator==(const Fusion&) const = default;
  };
  Fusion fusion() const;
  /// Returns how much of its next activation the layer computes.
  ActivationFusion activation_fusion() const {
    return next_activation ? op->activation_fusion(*next_activation) : ActivationFusion::no;
  }
  /// Returns what its kernel keeps from forward to backward.
  Kept keeps() const;
  /// Returns false if the layer has no weights to train and no input's gradient is needed. Readers on any stage then
  /// send no gradient of y back to it.
  bool has_backward() const { return trains() || needs_any_dx(); }
  /// Returns false for a weight that is the table of another layer, in its memory.
  bool holds(std::size_t weight) const { return weight > 0 || table < 0 || copies_table; }
};

/// For each layer, the layers on any stage that read its output, in order.
class Readers {
 public:
  Readers() = default;
  explicit Readers(const std::vector<LayerPlan>& layers);
  std::span<const int> of(int layer) const;

 private:
  std::vector<int> ends_, readers_;  // the readers of all layers, one layer after the other
};

/// A model bound to a strategy and a workload. The executor runs it, the cost model prices it and `explain` prints it.
/// A value; every rank holds the same plan.
struct Plan {
  std::string model;
  std::vector<Grid> grids;  ///< one per stage; stages take consecutive ranks
  Workload workload;
  std::vector<LayerPlan> layers;            ///< in execution order, for microbatches of the larger size
  std::vector<LayerPlan> remainder_layers;  ///< for microbatches with one sample less; empty if all are equal
  Readers all_readers;
  int microbatches = 1;  ///< number of balanced blocks of the batch
  /// The type in which gradients of weights are held: the compute dtype, or the master dtype if the strategy has
  /// several microbatches, of which each adds its part, or weights that rest in shards.
  DType gradient_dtype = DType::f32;
  std::vector<int> stage_of_group{0};  ///< group of layers -> stage
  /// A second replica of all layers. Its groups are on the stages in the opposite order (Chimera, Li and Hoefler 2021).
  struct SecondReplica {
    std::vector<LayerPlan> layers, remainder_layers;
    std::vector<int> stage_of_group;
    std::vector<bool> runs_microbatch;  ///< by microbatch: true if this replica runs it
  };
  std::optional<SecondReplica> second_replica;
  Schedule schedule;
  std::vector<Bucket> buckets;     ///< gradient buckets in the order in which backward completes them; training only
  bool sharded_optimizer = false;  ///< the ranks along a bucket's axes divide its update among them
  std::map<std::string, std::string> kernels;  ///< local convolution -> its algorithm, if measured

  /// The layer called `name`. Throws Error with the nearest name if there is none.
  const LayerPlan& layer(std::string_view name) const;
  /// The layer that made `value`. Throws Error if the value is of another model.
  const LayerPlan& layer(const Value& value) const;

  /// The layers that receive samples, in the model's order.
  std::vector<int> inputs() const;

  /// The grid of the first stage.
  const Grid& grid() const { return grids.front(); }
  int ranks() const { return grids.back().first_rank() + grids.back().size(); }
  /// Returns the stage of a rank of the world; rank_in_stage() returns its rank in the stage's grid.
  int stage_of_rank(int rank) const;
  int rank_in_stage(int rank) const { return rank - grids[stage_of_rank(rank)].first_rank(); }
  /// Returns the stage that runs a group of a replica; stage_of() does the same for a layer.
  int stage_running(int group, int replica = 0) const;
  int stage_of(int layer, int replica = 0) const;
  const Grid& grid_of(int layer, int replica = 0) const { return grids[stage_of(layer, replica)]; }
  int replicas() const { return second_replica ? 2 : 1; }
  /// Returns the replica of a group that a stage runs, or -1 if it runs none. A stage never runs both.
  int replica_on(int group, int stage) const;

  /// For one microbatch: its samples in the batch, the replica that runs it, and the bound layers of its size.
  Interval samples(int microbatch) const;
  /// The target of the loss of the first microbatch.
  Target target() const { return layers.back().op->target(layers.back()->input_shapes[0]); }
  int replica_of(int microbatch) const;
  const std::vector<LayerPlan>& layers_of(int microbatch) const;
  /// Returns the layers of a replica, for microbatches of the larger or, with `of_remainder`, of the smaller size.
  const std::vector<LayerPlan>& layers_of(int replica, bool of_remainder) const;
  /// Returns the number of microbatches that a replica runs.
  int microbatches_of(int replica) const;

  /// Returns the offset of each weight of the bucket on `rank` of its stage, in elements of one flat buffer. The last
  /// entry is the buffer's size.
  std::vector<Index> offsets(const Bucket& bucket, int rank) const;
  /// Returns the size of that buffer, in elements.
  Index elements(const Bucket& bucket, int rank) const;
  /// Returns the elements of that buffer that `rank` updates. It holds the optimizer's state of these elements only.
  Interval share(const Bucket& bucket, int rank) const;
  /// Returns true if a stage holds this bucket and the one with the other copy of its table.
  bool holds_both_copies(const Bucket& bucket, int stage) const;
  /// Returns true for the second of them, that of the layer behind the embedding.
  bool is_second_copy(const Bucket& bucket, int stage) const {
    return holds_both_copies(bucket, stage) && layers[bucket.last()].copies_table;
  }
  /// Returns the rank of the world with the other copy of the bucket's table, which holds the same part of it as `rank`
  /// of the bucket's stage.
  int rank_of_other_copy(const Bucket& bucket, int rank) const;
  /// Returns the axes over which norms of whole weights are summed.
  AxisSet norm_axes(const Bucket& bucket) const { return bucket.sharding | (sharded_optimizer ? bucket.axes : 0); }

  /// Returns the layers of a stage that read the output of `layer` in a replica, in order.
  std::vector<int> readers(int layer, int stage, int replica = 0) const;
  /// Returns true if a stage must keep the output of `layer` after forward, because a recomputed layer reads it or
  /// because it is sent to another stage.
  bool needs_output(int layer, int stage, int replica = 0) const;
  /// Return the axis sets over which a stage's collectives run: those of its layers, and those that sum its gradients.
  /// Each needs a communicator. They come in order of their first use.
  std::vector<AxisSet> axis_sets(int stage = 0) const;
  std::vector<AxisSet> gradient_axis_sets(int stage = 0) const;
  /// Returns a hash of everything that ranks must agree on.
  std::uint64_t hash() const;
};

/// The fraction of a microbatch's activations that layers keep from backward-data to backward-filter. It is 1, because
/// the gradients of weights need the layers' inputs.
inline constexpr double kept_until_backward_filter = 1;

/// Returns the edges between the groups of a plan's layers: which group feeds which.
GroupGraph graph_of(const Plan& plan);

}  // namespace partita
