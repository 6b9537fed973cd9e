#include "partita/model/operators.hpp"
#include "src/train/kernels/kernels.hpp"

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
    auto& saved = state<State>(call);
    saved.x = x[0];
    const Tensor sums = norm_numbers(x[0], 2, samples_, channels_, MemoryClass::workspace);
    backend.channel_sums(x[0], sums, call.rank.stream);
    const Tensor grouped = over_groups(call, "statistics forward", sums, {}, MemoryClass::workspace);
    saved.statistics = norm_numbers(x[0], 3, samples_, groups_, MemoryClass::activations);
    backend.norm_statistics(grouped, count_, epsilon_, saved.statistics, call.rank.stream);
    backend.norm_forward(x[0], saved.statistics, call.w[0], call.w[1], y, call.rank.stream);
  }

  void start_backward(const KernelCall& call, const Tensor& dy) const override {
    auto& saved = state<State>(call);
    saved.sums = norm_numbers(saved.x, 2, samples_, channels_, MemoryClass::activations);
    call.rank.backend.channel_gradient_sums(saved.x, dy, saved.statistics, saved.sums, call.rank.stream);
    saved.grouped = over_groups(call, "statistics backward", saved.sums, call.w[0], MemoryClass::activations);
  }

  void backward_filter(const KernelCall& call, const Tensor& /*dy*/) const override {
    const Tensor& sums = state<State>(call).sums;
    call.rank.backend.add_parts(sums, 1, call.dw[0], call.rank.stream);
    call.rank.backend.add_parts(sums, 0, call.dw[1], call.rank.stream);
  }

  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    const auto& saved = state<State>(call);
    call.rank.backend.norm_backward(saved.x, dy, saved.statistics, saved.grouped, /*scaled=*/true, call.w[0], count_,
                                    dx[0], call.rank.stream);
  }

 private:
  struct State final : Saved {
    Tensor x, statistics, sums, grouped;
  };

  /// Adds the channels of each group, times `scale` if there is one, and sums over the ranks that share the group's
  /// spatial positions.
  Tensor over_groups(const KernelCall& call, std::string_view role, const Tensor& sums, const Tensor& scale,
                     MemoryClass memory) const {
    const Tensor grouped = norm_numbers(sums, 2, samples_, groups_, memory);
    call.rank.backend.group_channels(sums, scale, grouped, call.rank.stream);
    call.label(role);
    if (space_ != 0 && grouped.volume() > 0)
      call.grid.along(space_)
          .all_reduce(grouped.data(), grouped.volume(), grouped.dtype(), ReduceOp::sum, call.rank.stream)
          .wait(call.rank.stream);
    return grouped;
  }

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
