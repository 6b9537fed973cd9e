#pragma once

#include "partita/layouts/redistribution.hpp"
#include "partita/model/model.hpp"
#include "partita/model/optimizer.hpp"
#include "partita/strategies/declare/strategy.hpp"
#include "partita/strategies/plan/gradient_bucket.hpp"
#include "partita/strategies/schedule/schedule.hpp"

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace partita {

/// What is run: everything about a step that is neither model nor strategy.
struct Workload {
  Index batch = 1;  ///< global samples a step
  DType dtype = DType::f32;
  bool training = true;
  Optimizer optimizer;
};

/// The element type in which weights are kept, summed over ranks and updated: f64 for f64, f32 for all shorter ones.
DType master_dtype(DType dtype);

/// What a layer leaves for another stage: from its ranks to those of the other's grid, straight.
struct StageBoundary {
  int group = 0;  ///< of layers, that takes it: the first of its stage that reads it
  Layout from;    ///< the layer's y, with no sum pending; the gradient comes back to it
  Layout to;      ///< as the group's first reader takes it; its gradient leaves as to.dual()
  std::vector<RedistributionStep> complete_sums;  ///< y -> from, on the layer's own grid

  /// Of a rank of the world: what it sends of y, or receives; backward with `back`, of the gradient.
  TransferPlan transfer(int rank, bool back) const;
};

/// What layers that are bound alike have in common: every layout, and every redistribution between them.
struct LayerBinding {
  std::vector<Shape> input_shapes;
  Shape shape;                      ///< of the output
  OperatorLayouts at;               ///< in which the operator runs
  Layout y;                         ///< in which its output is left for the consumers; its gradient arrives as y.dual()
  std::vector<WeightSpec> weights;  ///< laid out as at.w
  std::vector<bool> needs_dx;       ///< by input: something behind it has weights to train
  using Steps = std::vector<RedistributionStep>;
  std::vector<Steps> redistribute_input;  ///< by input: the producer's y -> at.x
  Steps redistribute_output;              ///< at.y -> y
  Steps redistribute_dy;                  ///< y.dual() -> at.y.dual()
  std::vector<Steps> redistribute_dx;     ///< by input: at.dx -> the producer's y.dual()
  std::vector<std::string> notes;         ///< what of a rule was dropped, and why

  /// True if the layer has weights to train.
  bool trains() const;
  /// True if the gradient of some input is needed.
  bool needs_any_dx() const;
  bool operator==(const LayerBinding&) const = default;
};

/// One layer, bound: its place in the model and on the stages, and, behind `->`, its binding. Equal layers share theirs: plans have
/// hundreds of layers and few that differ.
struct LayerPlan {
  int group = 0;  ///< of layers, that it belongs to
  std::string name;
  std::shared_ptr<const Operator> op;
  std::vector<int> inputs;
  std::vector<StageBoundary> sends_to_stages;  ///< for readers on other stages, by ascending group
  bool recompute = false;                      ///< its forward runs once more in backward: it keeps nothing meanwhile
  std::shared_ptr<const LayerBinding> binding;

  const LayerBinding* operator->() const { return binding.get(); }
  using Steps = LayerBinding::Steps;
  bool trains() const { return binding->trains(); }
  bool needs_any_dx() const { return binding->needs_any_dx(); }
  /// A layer without weights to train of which no input's gradient is needed has no backward: readers, on whatever stage, send no
  /// gradient of y back to it.
  bool has_backward() const { return trains() || needs_any_dx(); }
};

/// Of each layer those that take its output, on whatever stage, in order.
class Readers {
 public:
  Readers() = default;
  explicit Readers(const std::vector<LayerPlan>& layers);
  std::span<const int> of(int layer) const;

 private:
  std::vector<int> ends_, readers_;  // one layer's after the other's
};

/// A model bound to a strategy and a workload: all that the executor runs, the cost model prices and `explain` prints.
/// A value; every rank holds the same one.
struct Plan {
  std::string model;
  std::vector<Grid> grids;  ///< of each stage; stages take consecutive ranks
  Workload workload;
  std::vector<LayerPlan> layers;            ///< in the order in which they run, for microbatches of the larger size
  std::vector<LayerPlan> remainder_layers;  ///< for those of one sample less; empty if all are equal
  Readers all_readers;
  int microbatches = 1;                ///< balanced blocks of the batch
  std::vector<int> stage_of_group{0};  ///< group of layers -> stage
  /// A second replica of all layers, on the stages in the opposite order (Li and Hoefler 2021).
  struct SecondReplica {
    std::vector<LayerPlan> layers, remainder_layers;
    std::vector<int> stage_of_group;
    std::vector<bool> runs_microbatch;  ///< by microbatch: that it goes through this replica
  };
  std::optional<SecondReplica> second_replica;
  Schedule schedule;
  std::vector<Bucket> buckets;     ///< of gradients, in the order in which backward completes them; training only
  bool sharded_optimizer = false;  ///< the ranks along a bucket's axes share its update
  std::map<std::string, std::string> kernels;  ///< local convolution -> its algorithm, where somebody has measured

  /// The grid of the only stage.
  const Grid& grid() const { return grids.front(); }
  int ranks() const { return grids.back().first_rank() + grids.back().size(); }
  /// The stage that a rank of the world belongs to, and its rank in the stage's grid.
  int stage_of_rank(int rank) const;
  int rank_in_stage(int rank) const { return rank - grids[static_cast<std::size_t>(stage_of_rank(rank))].first_rank(); }
  /// The stage that runs a group, or a layer, of a replica.
  int stage_running(int group, int replica = 0) const;
  int stage_of(int layer, int replica = 0) const;
  const Grid& grid_of(int layer, int replica = 0) const {
    return grids[static_cast<std::size_t>(stage_of(layer, replica))];
  }
  int replicas() const { return second_replica ? 2 : 1; }
  /// The replica of a group that a stage runs, never both; -1 if it runs none.
  int replica_on(int group, int stage) const;

  /// The samples of one microbatch, the replica that it goes through, and how its layers lie.
  Interval samples(int microbatch) const;
  int replica_of(int microbatch) const;
  const std::vector<LayerPlan>& layers_of(int microbatch) const;
  /// Microbatches that go through a replica.
  int microbatches_of(int replica) const;

  /// Where the bucket's weights begin on `rank` of its stage, in elements of one flat buffer, and after the last its size.
  std::vector<Index> offsets(const Bucket& bucket, int rank) const;
  /// The elements of that buffer that `rank` updates, and holds the optimizer's state of.
  Interval share(const Bucket& bucket, int rank) const;
  /// The ranks over which norms of whole weights are summed.
  AxisSet norm_axes(const Bucket& bucket) const { return bucket.sharding | (sharded_optimizer ? bucket.axes : 0); }

  /// The layers of a stage that read `layer`'s output of a replica, in order.
  std::vector<int> readers(int layer, int stage, int replica = 0) const;
  /// True if that output must stay, on a stage, for a layer that runs once more in backward, or to be sent on.
  bool needs_output(int layer, int stage, int replica = 0) const;
  /// The axis sets over which a stage's collectives run, in order of their first use: a communicator each.
  std::vector<AxisSet> axis_sets(int stage = 0) const;
  /// Everything that ranks must agree on.
  std::uint64_t hash() const;
};

/// The share of a microbatch's activations that layers keep from backward-data to backward-filter: all, since the gradients of their
/// weights need their inputs.
inline constexpr double kept_until_backward_filter = 1;

/// The edges between the groups of a plan's layers: which group feeds which.
GroupGraph graph_of(const Plan& plan);

}  // namespace partita
