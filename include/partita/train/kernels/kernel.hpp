#pragma once

#include "partita/comm/counting.hpp"
#include "partita/comm/process_grid.hpp"
#include "partita/distconv/conv.hpp"
#include "partita/strategies/plan/plan.hpp"

#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace partita {

/// What a kernel keeps from forward to backward. There is one per layer and microbatch.
class Saved {
 public:
  virtual ~Saved() = default;
};

/// Everything around one call of a kernel: who computes, with which weights, on which samples.
struct KernelCall {
  const RankContext& rank;
  const ProcessGrid& grid;
  TrafficCounter& counter;
  const LayerPlan& layer;
  std::span<const Tensor> w;   ///< this rank's parts, in the compute dtype; running statistics in the master dtype
  std::span<const Tensor> dw;  ///< gradients of trained weights, in the compute dtype
  std::unique_ptr<Saved>& saved;
  const Tensor& target;  ///< this rank's part of what the loss compares its input with
  std::uint64_t seed = 0;
  const Tensor& step;      ///< one f64 number on the device: the number of the step, for random numbers
  Index first_sample = 0;  ///< the first sample of this microbatch, in the step's batch
  double share = 1;        ///< the share of the step's samples that this microbatch has; of a layer that adds a
                           ///< loss (Operator::adds_loss): times the loss scale of f16, so it is the factor of the
                           ///< loss's gradients
  bool is_first_microbatch = true;  ///< the first forward of this layer in the step
  bool training = true;
  /// A layer and the activation that follows it (LayerPlan::next_activation) are computed at once: the layer applies
  /// it, and the activation's forward has nothing to compute. Of a dropout: the layer after it computes its forward.
  bool fused = false;
  /// The dropout of input LayerPlan::drops, whose forward this layer computes; null if there is none.
  const LayerPlan* dropped = nullptr;
  bool is_recompute = false;  ///< a forward that runs again for the backward: running statistics must not count it
  Write write = Write::add;   ///< whether backward_filter overwrites dw (a step's first backward) or adds to it
  bool data_follows = false;  ///< for backward_filter: backward_data is called next, and may compute dw with dx
  /// f64 zeros, as many as Target::results says, to which a loss layer adds the mean loss of this microbatch, its
  /// number of right predictions, and, where elements count for less than others, the mean of their weights and the
  /// number of those that count; all summed over ranks
  const Tensor& result;
  /// The first place of this pass in its sequences, in which the boxes of tensors count from 0; 0 but in a Generator.
  Index first_place = 0;
  /// What the layer keeps of all places up to this pass, and for those after it: this rank's samples, with
  /// Operator::kept_channels channels, and as many places as there will be. Null but in a Generator.
  const Tensor* kept = nullptr;
  /// for a CustomLayer: this rank's part of the halos that layouts() named; null if it named none
  const HaloPart *x_halo = nullptr, *dy_halo = nullptr;

  /// For backward_data of a layer with LayerPlan::adds_gradient: dx is to be its sum with this. It may be dx itself.
  Tensor added = {};

  /// The numbers by which this layer, or a given one, drops elements in training.
  Random dropout_numbers() const { return dropout_numbers(layer); }
  Random dropout_numbers(const LayerPlan& of) const { return {seed, hash_text("dropout " + of.name)}; }
  /// Counts the communication that follows under this layer and `role`, which must be a PlannedTraffic::role.
  void label(std::string_view role) const { counter.set_label(layer.name, role); }
};

/// Runs one layer on one rank. It holds what depends on plan and rank alone; state lives in the call.
/// Tensors hold the boxes of LayerPlan::at for this rank. The backward calls come in the order start, filter, data, or,
/// where a schedule splits them, start, data and later filter.
class Kernel {
 public:
  virtual ~Kernel() = default;
  /// The local convolutions that it will run, for which a backend may have several algorithms. `fused` is
  /// KernelCall::fused.
  virtual std::vector<ConvProblem> problems(bool /*training*/, bool /*ahead*/, bool /*fused*/) const { return {}; }
  /// Writes all of y. The previous content of y is undefined. A loss has no y, and adds its numbers to call.result.
  virtual void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const = 0;
  /// Starts what can travel while backward_filter computes.
  virtual void start_backward(const KernelCall& /*call*/, const Tensor& /*dy*/) const {}
  /// dw += this rank's part; where `supports_overwrite`, as call.write says.
  virtual void backward_filter(const KernelCall& /*call*/, const Tensor& /*dy*/) const {}
  /// True if backward_filter overwrites dw where call.write says so, which saves reading what is large. The others get
  /// zeros to add to.
  virtual bool supports_overwrite() const { return false; }
  /// Writes all of dx for every input. The previous content is undefined. The dx of an input that holds whole numbers
  /// (Operator::reads_integers) is an empty tensor, and stays empty. It is called only if one dx is needed, and
  /// not where the layer forwards dy (LayerPlan::forwards_gradient). Others may hold dy: a kernel never writes to it.
  virtual void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const = 0;
};

/// Makes the kernel of a layer for one rank: the layer itself if it is a CustomLayer, else the kernel of its kind.
/// Throws Error if there is none.
std::unique_ptr<Kernel> make_kernel(const LayerPlan& layer, int rank);

}  // namespace partita
