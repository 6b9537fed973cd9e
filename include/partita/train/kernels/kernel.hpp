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

/// What a kernel keeps from forward to backward; one a layer and microbatch.
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
  std::span<const Tensor> dw;  ///< gradients, of trained weights
  std::unique_ptr<Saved>& saved;
  const Tensor& target;  ///< what the loss compares its input with, of its places on this rank
  std::uint64_t seed = 0;
  Index step = 0;
  Index first_sample = 0;           ///< of this microbatch, in the step's batch
  double share = 1;                 ///< of the step's samples that are in this microbatch; of a loss layer: times the
                                    ///< loss scale of f16, so it is the factor of the loss's gradients
  bool is_first_microbatch = true;  ///< the first forward of this layer in the step
  bool training = true;
  bool is_recompute = false;  ///< a forward that runs once more, for the backward: it must not count twice
  Write write = Write::add;   ///< to dw; over in a step's first backward
  double* loss = nullptr;     ///< where a loss layer leaves the mean over this microbatch
  double* correct = nullptr;  ///< and the fraction of right predictions

  /// Counts the communication that follows under this layer and `role`, as Plan::traffic names it.
  void label(std::string_view role) const { counter.set_label(layer.name, role); }
};

/// Runs one layer on one rank. It holds what depends on plan and rank alone; state lives in the call.
/// Tensors hold the boxes of LayerPlan::at for this rank. The backward calls come in the order start, filter, data, or,
/// where a schedule splits them, start, data and later filter.
class Kernel {
 public:
  virtual ~Kernel() = default;
  /// The local convolutions that it will run, for which a backend may have several algorithms.
  virtual std::vector<ConvProblem> problems(bool /*training*/, bool /*ahead*/) const { return {}; }
  /// Writes all of y, which holds anything before (a loss leaves its number instead).
  virtual void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const = 0;
  /// Starts what can travel while backward_filter computes.
  virtual void start_backward(const KernelCall& /*call*/, const Tensor& /*dy*/) const {}
  /// dw += this rank's part; where `supports_overwrite`, as call.write says.
  virtual void backward_filter(const KernelCall& /*call*/, const Tensor& /*dy*/) const {}
  /// True if backward_filter overwrites dw where call.write says so, which saves reading what is large. The others get
  /// zeros to add to.
  virtual bool supports_overwrite() const { return false; }
  /// Writes all dx of every input, which hold anything before; called only if one of them is needed.
  virtual void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const = 0;
};

/// Makes the kernel of a layer for one rank: the layer itself if it is a CustomLayer, else the kernel of its kind.
/// Throws Error if there is none.
std::unique_ptr<Kernel> make_kernel(const LayerPlan& layer, int rank);

}  // namespace partita
