#include "src/model/operators.hpp"
#include "src/train/kernels/kernels.hpp"
#include "src/train/kernels/norm_sums.hpp"

#include <utility>

namespace partita {

namespace {

/// What both normalizations share: all but where their sums come from.
class NormKernel : public Kernel {
 public:
  void backward_filter(const KernelCall& call, const Tensor& /*dy*/) const override {
    auto& saved = state<State>(call);
    const NormWeightGradients weights{saved.sums.of_weights, call.dw[0], call.dw[1], call.write};
    if (call.data_follows)
      saved.weights = weights;
    else
      call.rank.backend.norm_weight_gradients(weights, call.rank.stream);
  }
  bool supports_overwrite() const override { return true; }

  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    auto& saved = state<State>(call);
    call.rank.backend.norm_backward(saved.x, {dy, saved.passed}, saved.statistics, saved.sums.of_dx, scaled_, call.w[0],
                                    count_, dx[0], std::exchange(saved.weights, {}), call.rank.stream);
  }

 protected:
  struct State final : Saved {
    Tensor x, statistics;
    NormGradientSums sums;
    NormWeightGradients weights;  // that backward_data computes
    Tensor passed;                // y, if ReLU was computed with it
  };

  /// `scaled`: the sums of dx have the scale in them.
  explicit NormKernel(bool scaled) : scaled_(scaled) {}

  /// Computes y by the statistics of the state.
  static void normalize(const KernelCall& call, const Tensor& x, const Tensor& y) {
    auto& saved = state<State>(call);
    call.rank.backend.norm_forward(x, saved.statistics, call.w[0], call.w[1], call.fused, y, call.rank.stream);
    saved.passed = call.fused ? y : Tensor();
  }

  static Communicator* along(const KernelCall& call, AxisSet axes) {
    return axes == 0 ? nullptr : &call.grid.along(axes);
  }

  Index count_ = 0;  // number of elements in each mean

 private:
  bool scaled_;
};

/// Weights: scale, shift, running mean and running variance, all with the layout of the channels.
class BatchNormKernel final : public NormKernel {
 public:
  BatchNormKernel(const LayerPlan& layer, int rank)
      : NormKernel(/*scaled=*/false), norm_(static_cast<const BatchNormOperator&>(*layer.op).norm()) {
    const Layout& x = layer->at.x[0];
    all_ = x.sharding() & ~x.sharding('C');
    axes_ = static_cast<const BatchNormOperator&>(*layer.op).statistics_axes(x);
    const auto places = [](const Box& box) { return box.extent(1) == 0 ? 0 : box.volume() / box.extent(1); };
    const Index mine = places(x.owned(rank)), whole = places(Box(x.shape()));
    for (const int other : x.grid().group(rank, axes_)) count_ += places(x.owned(other));
    share_ = static_cast<double>(mine) / static_cast<double>(std::max<Index>(whole, 1));
  }

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    auto& backend = call.rank.backend;
    const Stream stream = call.rank.stream;
    auto& saved = state<State>(call);
    if (call.training) {
      saved.x = x[0];
      call.label("statistics forward");
      // Statistics of this rank's part alone are averaged over ranks first.
      const bool same = axes_ == all_, advances = same && !call.is_recompute;
      saved.statistics = norm_statistics(backend, along(call, axes_), x[0], 1, x[0].extent('C'), count_, norm_.epsilon,
                                         advances ? running(call) : RunningStatistics(), stream);
      if (!same) update_running(call, saved.statistics);
    } else {
      saved.statistics = norm_numbers(x[0], 3, 1, x[0].extent('C'), MemoryClass::activations);
      backend.given_statistics(call.w[2], call.w[3], norm_.epsilon, saved.statistics, stream);
    }
    normalize(call, x[0], y);
  }

  void start_backward(const KernelCall& call, const Tensor& dy) const override {
    auto& saved = state<State>(call);
    call.label("statistics backward");
    saved.sums = norm_gradient_sums(call.rank.backend, along(call, axes_), saved.statistics, saved.x,
                                    {dy, saved.passed}, call.rank.stream);
  }

 private:
  /// running = (1-m) * running + m * batch, once per step. With several microbatches, `batch` is their mean, weighted
  /// by samples. The variance is unbiased.
  RunningStatistics running(const KernelCall& call) const {
    return {call.w[2], call.w[3], call.is_first_microbatch ? 1 - norm_.momentum : 1, norm_.momentum * call.share};
  }

  /// The same where statistics differ between ranks: their mean (weighted by elements) is used, so that replicas of the
  /// running statistics agree.
  void update_running(const KernelCall& call, const Tensor& statistics) const {
    auto& backend = call.rank.backend;
    const Stream stream = call.rank.stream;
    const Tensor both = norm_numbers(statistics, 2, 1, statistics.extent('C'), MemoryClass::workspace);
    const Tensor mean = norm_number(both, 0), variance = norm_number(both, 1);
    backend.axpby(share_, norm_number(statistics, 0), 0, mean, stream);
    backend.axpby(share_, norm_number(statistics, 1), 0, variance, stream);
    if (count_ > 1) backend.axpby(unbiased(count_), variance, 0, variance, stream);
    call.label("running statistics");
    sum_over(along(call, all_), both, stream);
    if (call.is_recompute) return;
    const RunningStatistics to = running(call);
    backend.axpby(to.add, mean, to.keep, to.mean, stream);
    backend.axpby(to.add, variance, to.keep, to.variance, stream);
  }

  BatchNorm norm_;
  // axes that shard samples or spatial positions, and axes along which statistics are summed
  AxisSet all_ = 0, axes_ = 0;
  double share_ = 1;  // weight of this rank's statistics in the mean of all
};

/// Group normalization: statistics for each sample and group of channels, over m elements each. xhat = (x - mean) * r:
///
///     y = scale * xhat + shift
///     dx = r * (scale * dy - (sum scale*dy + xhat * sum scale*dy*xhat) / m)
class GroupNormKernel final : public NormKernel {
 public:
  GroupNormKernel(const LayerPlan& layer, int rank)
      : NormKernel(/*scaled=*/true), epsilon_(static_cast<const GroupNormOperator&>(*layer.op).norm().epsilon) {
    const Layout& x = layer->at.x[0];
    const Index groups = static_cast<const GroupNormOperator&>(*layer.op).norm().groups;
    space_ = x.sharding() & ~x.sharding('C') & ~x.sharding('N');
    const Box mine = x.owned(rank);
    samples_ = mine.extent(0);
    groups_ = mine.extent(1) / (x.shape()['C'] / groups);
    count_ = x.shape().volume() / std::max<Index>(x.shape()['N'] * groups, 1);
  }

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    auto& saved = state<State>(call);
    saved.x = x[0];
    call.label("statistics forward");
    saved.statistics = norm_statistics(call.rank.backend, along(call, space_), x[0], samples_, groups_, count_,
                                       epsilon_, {}, call.rank.stream);
    normalize(call, x[0], y);
  }

  void start_backward(const KernelCall& call, const Tensor& dy) const override {
    auto& saved = state<State>(call);
    call.label("statistics backward");
    saved.sums = group_gradient_sums(call.rank.backend, along(call, space_), saved.statistics, saved.x,
                                     {dy, saved.passed}, call.w[0], samples_, groups_, call.rank.stream);
  }

 private:
  double epsilon_;
  AxisSet space_ = 0;
  Index samples_ = 0, groups_ = 0;  // of this rank
};

}  // namespace

std::unique_ptr<Kernel> make_batch_norm_kernel(const LayerPlan& layer, int rank) {
  return std::make_unique<BatchNormKernel>(layer, rank);
}
std::unique_ptr<Kernel> make_group_norm_kernel(const LayerPlan& layer, int rank) {
  return std::make_unique<GroupNormKernel>(layer, rank);
}

}  // namespace partita
