#include "src/model/operators.hpp"
#include "src/train/kernels/kernels.hpp"
#include "src/train/kernels/norm_sums.hpp"

namespace partita {

namespace {

/// Weights: scale, shift, running mean and running variance, all with the layout of the channels.
class BatchNormKernel final : public Kernel {
 public:
  BatchNormKernel(const LayerPlan& layer, int rank) : norm_(static_cast<const BatchNormOperator&>(*layer.op).norm()) {
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
      Communicator* const ranks = along(call, axes_);
      saved.x = x[0];
      call.label("statistics forward");
      // Statistics of this rank's part alone are averaged over ranks first.
      const bool same = axes_ == all_, advances = same && !call.is_recompute;
      saved.statistics = norm_statistics(backend, ranks, x[0], 1, x[0].extent('C'), count_, norm_.epsilon,
                                         advances ? running(call) : RunningStatistics(), stream);
      if (!same) update_running(call, saved.statistics);
    } else {
      saved.statistics = norm_numbers(x[0], 3, 1, x[0].extent('C'), MemoryClass::activations);
      backend.given_statistics(call.w[2], call.w[3], norm_.epsilon, saved.statistics, stream);
    }
    backend.norm_forward(x[0], saved.statistics, call.w[0], call.w[1], call.fused, y, stream);
    saved.passed = call.fused ? y : Tensor();
  }

  void start_backward(const KernelCall& call, const Tensor& dy) const override {
    auto& saved = state<State>(call);
    call.label("statistics backward");
    saved.sums = norm_gradient_sums(call.rank.backend, along(call, axes_), saved.statistics, saved.x,
                                    {dy, saved.passed}, call.rank.stream);
  }

  void backward_filter(const KernelCall& call, const Tensor& /*dy*/) const override {
    const Tensor& sums = state<State>(call).sums;
    call.rank.backend.norm_weight_gradients(sums, call.dw[0], call.dw[1], call.write, call.rank.stream);
  }
  bool supports_overwrite() const override { return true; }

  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    const auto& saved = state<State>(call);
    call.rank.backend.norm_backward(saved.x, {dy, saved.passed}, saved.statistics, saved.sums, /*scaled=*/false,
                                    call.w[0], count_, dx[0], call.rank.stream);
  }

 private:
  struct State final : Saved {
    Tensor x, statistics, sums;
    Tensor passed;  // y, if ReLU was computed with it
  };

  static Communicator* along(const KernelCall& call, AxisSet axes) {
    return axes == 0 ? nullptr : &call.grid.along(axes);
  }

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
    if (both.volume() > 0)
      along(call, all_)->all_reduce(both.data(), both.volume(), both.dtype(), ReduceOp::sum, stream).wait(stream);
    if (call.is_recompute) return;
    const RunningStatistics to = running(call);
    backend.axpby(to.add, mean, to.keep, to.mean, stream);
    backend.axpby(to.add, variance, to.keep, to.variance, stream);
  }

  BatchNorm norm_;
  // axes that shard samples or spatial positions, and axes along which statistics are summed
  AxisSet all_ = 0, axes_ = 0;
  Index count_ = 0;   // number of elements in each mean
  double share_ = 1;  // weight of this rank's statistics in the mean of all
};

}  // namespace

std::unique_ptr<Kernel> make_batch_norm_kernel(const LayerPlan& layer, int rank) {
  return std::make_unique<BatchNormKernel>(layer, rank);
}

}  // namespace partita
