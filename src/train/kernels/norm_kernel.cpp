#include "partita/distconv/norm.hpp"
#include "partita/model/operators.hpp"
#include "src/train/kernels/kernels.hpp"

#include <optional>

namespace partita {

namespace {

/// Weights: scale, shift, running mean and running variance, all with the layout of the channels.
class NormKernel final : public Kernel {
 public:
  NormKernel(const LayerPlan& layer, int rank) : norm_(static_cast<const BatchNormOperator&>(*layer.op).norm()) {
    const Layout& x = layer->at.x[0];
    all_ = x.sharding() & ~x.sharding('C');
    axes_ = static_cast<const BatchNormOperator&>(*layer.op).statistics_axes(x);
    const auto places = [](const Box& box) { return box.extent(1) == 0 ? 0 : box.volume() / box.extent(1); };
    const Index mine = places(x.owned(rank)), whole = places(Box(x.shape()));
    for (const int other : x.grid().group(rank, axes_)) count_ += places(x.owned(other));
    share_ = axes_ == all_ ? 1 : static_cast<double>(mine) / static_cast<double>(std::max<Index>(whole, 1));
  }

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    auto& backend = call.rank.backend;
    auto& saved = state<State>(call);
    if (call.training) {
      call.label("statistics forward");
      saved.x = x[0];
      saved.statistics = batch_statistics(backend, along(call, axes_), x[0], count_, norm_.epsilon, call.rank.stream);
      update_running(call, saved.statistics);
    } else {
      saved.statistics = running_statistics(call.w[2], call.w[3], norm_.epsilon);
    }
    norm_forward(backend, saved.statistics, x[0], call.w[0], call.w[1], y, call.rank.stream);
  }

  void start_backward(const KernelCall& call, const Tensor& dy) const override {
    auto& saved = state<State>(call);
    call.label("statistics backward");
    saved.sums =
        norm_gradient_sums(call.rank.backend, along(call, axes_), saved.statistics, saved.x, dy, call.rank.stream);
  }

  void backward_filter(const KernelCall& call, const Tensor& /*dy*/) const override {
    const auto& sums = state<State>(call).sums;
    for (Index c = 0; c < static_cast<Index>(sums.dy.size()); ++c) {
      const auto i = static_cast<std::size_t>(c);
      call.dw[0].set(c, call.dw[0].get(c) + sums.dy_xhat[i]);
      call.dw[1].set(c, call.dw[1].get(c) + sums.dy[i]);
    }
  }

  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    const auto& saved = state<State>(call);
    norm_backward(call.rank.backend, saved.statistics, saved.sums, saved.x, dy, call.w[0], dx[0], call.rank.stream);
  }

 private:
  struct State final : Saved {
    Tensor x;
    NormStatistics statistics;
    NormGradientSums sums;
  };

  static Communicator* along(const KernelCall& call, AxisSet axes) {
    return axes == 0 ? nullptr : &call.grid.along(axes);
  }

  /// running = (1-m) * running + m * batch, once per step. With several microbatches, `batch` is their mean, weighted
  /// by samples. The variance is unbiased. If statistics differ between ranks, their mean (weighted by elements) is
  /// used, so that replicas of the running statistics agree.
  void update_running(const KernelCall& call, const NormStatistics& batch) const {
    const std::size_t channels = batch.mean.size();
    const double unbiased =
        batch.count > 1 ? static_cast<double>(batch.count) / static_cast<double>(batch.count - 1) : 1.0;
    std::vector<double> both(2 * channels);
    for (std::size_t c = 0; c < channels; ++c) {
      both[c] = share_ * batch.mean[c];
      both[channels + c] = share_ * batch.variance[c] * unbiased;
    }
    call.label("running statistics");
    if (axes_ != all_ && channels > 0)
      along(call, all_)
          ->all_reduce(both.data(), static_cast<Index>(both.size()), DType::f64, ReduceOp::sum, call.rank.stream)
          .wait();
    if (call.is_recompute) return;
    const double kept = call.is_first_microbatch ? 1 - norm_.momentum : 1, m = norm_.momentum * call.share;
    for (std::size_t c = 0; c < channels; ++c) {
      const auto i = static_cast<Index>(c);
      call.w[2].set(i, kept * call.w[2].get(i) + m * both[c]);
      call.w[3].set(i, kept * call.w[3].get(i) + m * both[channels + c]);
    }
  }

  BatchNorm norm_;
  // axes that shard samples or spatial positions, and axes along which statistics are summed
  AxisSet all_ = 0, axes_ = 0;
  Index count_ = 0;   // number of elements in each mean
  double share_ = 1;  // weight of this rank's statistics in the mean of all
};

}  // namespace

std::unique_ptr<Kernel> make_norm_kernel(const LayerPlan& layer, int rank) {
  return std::make_unique<NormKernel>(layer, rank);
}

}  // namespace partita
