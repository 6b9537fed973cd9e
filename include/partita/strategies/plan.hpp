#pragma once

#include "partita/base/memory.hpp"
#include "partita/base/traffic.hpp"
#include "partita/layouts/redistribution.hpp"
#include "partita/model/model.hpp"
#include "partita/model/optimizer.hpp"
#include "partita/strategies/bucket.hpp"
#include "partita/strategies/schedule.hpp"
#include "partita/strategies/strategy.hpp"

#include <map>
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

/// One layer, bound: every layout, and every redistribution between them.
struct LayerPlan {
  std::string name;
  std::shared_ptr<const Operator> op;
  std::vector<int> inputs;
  std::vector<Shape> input_shapes;
  Shape shape;                      ///< of the output
  OperatorLayouts at;               ///< in which the operator runs
  Layout y;                         ///< in which its output is left for the consumers; its gradient arrives as y.dual()
  std::vector<WeightSpec> weights;  ///< laid out as at.w
  std::vector<bool> needs_dx;       ///< by input: something behind it has weights to train
  using Steps = std::vector<RedistributionStep>;
  std::vector<Steps> arrive;       ///< by input: the producer's y -> at.x
  Steps finish;                    ///< at.y -> y
  Steps finish_back;               ///< y.dual() -> at.y.dual()
  std::vector<Steps> leave;        ///< by input: at.dx -> the producer's y.dual()
  bool recompute = false;          ///< its forward runs once more in backward: it keeps nothing meanwhile
  std::vector<std::string> notes;  ///< what of a rule was dropped, and why

  /// True if the layer has weights to train.
  bool trains() const;
  /// True if the gradient of some input is needed. A layer of which neither holds has no backward.
  bool needs_any_dx() const;
  bool has_backward() const { return trains() || needs_any_dx(); }
};

/// The most bytes that a rank holds.
struct MemoryPeak {
  MemoryUse each;   ///< of each class by itself, at different moments
  Index total = 0;  ///< of all together, at one moment
};

/// One communication of one layer, as one rank will see it.
struct PlannedTraffic {
  std::string role;  ///< "halo x", "y", "statistics forward", "loss", "dy", "halo dy", "dx", "dw weight", ...
  Verb verb = Verb::none;
  AxisSet axes = 0;
  Traffic traffic;
};

/// A model bound to a strategy and a workload: all that the executor runs, the cost model prices and `explain` prints.
/// A value; every rank holds the same one.
struct Plan {
  std::string model;
  Grid grid;
  Workload workload;
  std::vector<LayerPlan> layers;   ///< in the order in which they run, for microbatches of the larger size
  std::vector<LayerPlan> smaller;  ///< for those of one sample less; empty if all are equal
  int microbatches = 1;            ///< balanced blocks of the batch
  Schedule schedule;
  std::vector<Bucket> buckets;  ///< of gradients, in the order in which backward completes them; training only
  bool distributed = false;     ///< the ranks along a bucket's axes share its update
  std::map<std::string, std::string> kernels;  ///< local convolution -> its algorithm, where somebody has measured

  /// The samples of one microbatch, and how its layers lie.
  Interval samples(int microbatch) const;
  const std::vector<LayerPlan>& layers_of(int microbatch) const;

  /// Where the bucket's weights begin on `rank`, in elements of one flat buffer, and after the last its size.
  std::vector<Index> offsets(const Bucket& bucket, int rank) const;
  /// The elements of that buffer that `rank` updates, and holds the optimizer's state of.
  Interval share(const Bucket& bucket, int rank) const;
  /// The ranks over which norms of whole weights are summed.
  AxisSet norm_axes(const Bucket& bucket) const { return bucket.sharding | (distributed ? bucket.axes : 0); }

  /// What `rank` puts on the network for one layer in one run of the schedule, in the order in which one
  /// microbatch comes to it; only what moves something.
  std::vector<PlannedTraffic> traffic(int layer, int rank) const;
  /// The sum over all layers.
  Traffic traffic(int rank) const;
  /// Bytes that one layer holds of one (larger) microbatch on `rank`, by class: weights, gradients and optimizer state for good, activations (its
  /// output and what its backward keeps) and halos (extended inputs) from its forward to its backward.
  MemoryUse memory(int layer, int rank) const;
  /// The most that `rank` holds in a run of the schedule, a batch of images and targets included: what the executor
  /// allocates and releases, in its order. Not in it: buffers of messages between nodes and the backend's own (padded or
  /// blocked copies); kernels that compute ahead of halos need a few rows more.
  MemoryPeak peak(int rank) const;
  /// The layers that read `layer`'s output, in order.
  std::vector<int> readers(int layer) const;
  /// True if that output must stay for a layer that runs once more in backward.
  bool needs_output(int layer) const;
  /// The axis sets over which collectives run, in order of their first use: a communicator each.
  std::vector<AxisSet> axis_sets() const;
  /// Everything that ranks must agree on.
  std::uint64_t hash() const;
};

/// Binds. Pure: needs neither ranks nor a device. Throws Error that names layer, dimension, axis and the rule's line
/// for a rule that matches nothing, an axis or a dimension that is not there, or a layout in which a layer cannot run.
Plan bind(const Model& model, const Strategy& strategy, const Workload& workload);

/// Throws Error that says how much is missing, and in which classes, if the rank that holds most passes `limit` bytes; 0 is
/// no limit.
void check_memory(const Plan& plan, Index limit);

/// The strategy with what `plan` chose written out: other workloads (a smaller last batch, an evaluation) would choose by
/// costs of their own, but find the weights where this plan has them.
Strategy settled(Strategy strategy, const Plan& plan);

}  // namespace partita
