#include "src/model/operators.hpp"
#include "src/train/kernels/kernels.hpp"
#include "src/train/kernels/norm_sums.hpp"

namespace partita {

namespace {

/// Group normalization: statistics for each sample and group of channels, over m elements each. xhat = (x - mean) * r:
///
///     y = scale * xhat + shift
///     dx = r * (scale * dy - (sum scale*dy + xhat * sum scale*dy*xhat) / m)
class GroupNormKernel final : public Kernel {
 public:
  GroupNormKernel(const LayerPlan& layer, int rank)
      : epsilon_(static_cast<const GroupNormOperator&>(*layer.op).norm().epsilon) {
    const Layout& x = layer->at.x[0];
    const Index groups = static_cast<const GroupNormOperator&>(*layer.op).norm().groups;
    space_ = x.sharding() & ~x.sharding('C') & ~x.sharding('N');
    const Box mine = x.owned(rank);
    samples_ = mine.extent(0);
    channels_ = mine.extent(1);
    groups_ = channels_ / (x.shape()['C'] / groups);
    count_ = x.shape().volume() / std::max<Index>(x.shape()['N'] * groups, 1);
  }

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    auto& backend = call.rank.backend;
    const Stream stream = call.rank.stream;
    auto& saved = state<State>(call);
    Communicator* const ranks = space_ == 0 ? nullptr : &call.grid.along(space_);
    saved.x = x[0];
    call.label("statistics forward");
    saved.statistics = norm_statistics(backend, ranks, x[0], samples_, groups_, count_, epsilon_, {}, stream);
    backend.norm_forward(x[0], saved.statistics, call.w[0], call.w[1], call.fused, y, stream);
    saved.passed = call.fused ? y : Tensor();
  }

  void start_backward(const KernelCall& call, const Tensor& dy) const override {
    auto& saved = state<State>(call);
    saved.sums = norm_numbers(saved.x, 2, samples_, channels_, MemoryClass::activations);
    saved.grouped = norm_numbers(saved.x, 2, samples_, groups_, MemoryClass::activations);
    call.rank.backend.channel_gradient_sums(saved.x, {dy, saved.passed}, saved.statistics, saved.sums,
                                            call.rank.stream);
    call.rank.backend.group_channels(saved.sums, call.w[0], saved.grouped, call.rank.stream);
    call.label("statistics backward");
    if (space_ != 0 && saved.grouped.volume() > 0)
      call.grid.along(space_)
          .all_reduce(saved.grouped.data(), saved.grouped.volume(), DType::f64, ReduceOp::sum, call.rank.stream)
          .wait(call.rank.stream);
  }

  void backward_filter(const KernelCall& call, const Tensor& /*dy*/) const override {
    const Tensor& sums = state<State>(call).sums;
    call.rank.backend.norm_weight_gradients(sums, call.dw[0], call.dw[1], call.write, call.rank.stream);
  }
  bool supports_overwrite() const override { return true; }

  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    const auto& saved = state<State>(call);
    call.rank.backend.norm_backward(saved.x, {dy, saved.passed}, saved.statistics, saved.grouped, /*scaled=*/true,
                                    call.w[0], count_, dx[0], call.rank.stream);
  }

 private:
  struct State final : Saved {
    Tensor x, statistics, sums, grouped;
    Tensor passed;  // y, if ReLU was computed with it
  };

  double epsilon_;
  AxisSet space_ = 0;
  Index samples_ = 0, channels_ = 0, groups_ = 0;  // of this rank
  Index count_ = 0;                                // elements of a group
};

}  // namespace

std::unique_ptr<Kernel> make_group_norm_kernel(const LayerPlan& layer, int rank) {
  return std::make_unique<GroupNormKernel>(layer, rank);
}

}  // namespace partita
