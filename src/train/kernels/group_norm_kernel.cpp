#include "partita/model/operators.hpp"
#include "src/train/kernels/kernels.hpp"

#include <cmath>

namespace partita {

namespace {

/// One value per sample and channel, or per sample and group, of this rank; sample by sample.
using PerSample = std::vector<double>;

/// Group normalization, sample by sample, with the sums of batch normalization: the sums of a group's channels are
/// added up. m is the number of elements in a group, and xhat = (x - mean) * r:
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
    channels_ = static_cast<std::size_t>(mine.extent(1));
    a_group_ = static_cast<std::size_t>(x.shape()['C'] / groups);
    count_ = static_cast<double>(x.shape().volume() / std::max<Index>(x.shape()['N'] * groups, 1));
  }

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    auto& saved = state<State>(call);
    saved.x = x[0];
    PerSample first = room(), second = room();
    for (Index n = 0; n < samples_; ++n)
      call.rank.backend.channel_sums(sample(x[0], n), {of(first, n), of(second, n)}, call.rank.stream);
    const auto [sum, square] = over_groups(call, "statistics forward", first, second);
    saved.mean = saved.inverse_deviation = sum;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      saved.mean[i] = sum[i] / count_;
      const double variance = std::max(square[i] / count_ - saved.mean[i] * saved.mean[i], 0.0);
      saved.inverse_deviation[i] = 1 / std::sqrt(variance + epsilon_);
    }
    std::vector<double> factor(channels_), offset(channels_);
    for (Index n = 0; n < samples_; ++n) {
      for (std::size_t c = 0; c < channels_; ++c) {
        factor[c] = call.w[0].get(static_cast<Index>(c)) * saved.inverse_deviation[group(n, c)];
        offset[c] = call.w[1].get(static_cast<Index>(c)) - saved.mean[group(n, c)] * factor[c];
      }
      call.rank.backend.channel_affine(sample(x[0], n), factor, offset, sample(y, n), call.rank.stream);
    }
  }

  void start_backward(const KernelCall& call, const Tensor& dy) const override {
    auto& saved = state<State>(call);
    PerSample of_dy = room(), of_xhat = room();
    std::vector<double> mean(channels_), by(channels_);
    saved.dscale.assign(channels_, 0);
    saved.dshift.assign(channels_, 0);
    for (Index n = 0; n < samples_; ++n) {
      for (std::size_t c = 0; c < channels_; ++c) {
        mean[c] = saved.mean[group(n, c)];
        by[c] = saved.inverse_deviation[group(n, c)];
      }
      const auto first = of(of_dy, n), second = of(of_xhat, n);
      call.rank.backend.channel_gradient_sums(sample(saved.x, n), sample(dy, n), mean, by, {first, second},
                                              call.rank.stream);
      for (std::size_t c = 0; c < channels_; ++c) {
        saved.dshift[c] += first[c];
        saved.dscale[c] += second[c];
        first[c] *= call.w[0].get(static_cast<Index>(c));
        second[c] *= call.w[0].get(static_cast<Index>(c));
      }
    }
    std::tie(saved.of_dy, saved.of_xhat) = over_groups(call, "statistics backward", of_dy, of_xhat);
  }

  void backward_filter(const KernelCall& call, const Tensor& /*dy*/) const override {
    const auto& saved = state<State>(call);
    for (std::size_t c = 0; c < channels_; ++c) {
      const auto i = static_cast<Index>(c);
      call.dw[0].set(i, call.dw[0].get(i) + saved.dscale[c]);
      call.dw[1].set(i, call.dw[1].get(i) + saved.dshift[c]);
    }
  }

  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    const auto& saved = state<State>(call);
    std::vector<double> of_dy(channels_), of_x(channels_), of_one(channels_);
    for (Index n = 0; n < samples_; ++n) {
      for (std::size_t c = 0; c < channels_; ++c) {
        const std::size_t g = group(n, c);
        const double r = saved.inverse_deviation[g];
        of_dy[c] = call.w[0].get(static_cast<Index>(c)) * r;
        of_x[c] = -r * r * saved.of_xhat[g] / count_;
        of_one[c] = -r * saved.of_dy[g] / count_ - of_x[c] * saved.mean[g];
      }
      call.rank.backend.channel_affine_backward(sample(saved.x, n), sample(dy, n), of_dy, of_x, of_one,
                                                sample(dx[0], n), call.rank.stream);
    }
  }

 private:
  struct State final : Saved {
    Tensor x;
    PerSample mean, inverse_deviation, of_dy, of_xhat;  // by group
    std::vector<double> dscale, dshift;                 // by channel
  };

  std::size_t groups() const { return channels_ / a_group_; }
  std::size_t group(Index n, std::size_t channel) const {
    return static_cast<std::size_t>(n) * groups() + channel / a_group_;
  }
  PerSample room() const { return PerSample(static_cast<std::size_t>(samples_) * channels_); }
  /// Returns the values of this rank's n-th sample, by channel.
  std::span<double> of(PerSample& values, Index n) const {
    return std::span(values).subspan(static_cast<std::size_t>(n) * channels_, channels_);
  }

  /// Returns this rank's n-th sample.
  static Tensor sample(const Tensor& x, Index n) {
    Box box = x.box();
    box[0] = {box[0].lo + n, box[0].lo + n + 1};
    return Tensor::view(x, n * box.volume(), x.names(), box);
  }

  /// Adds the channels of each group, and sums over the ranks that share the group's spatial positions.
  std::pair<PerSample, PerSample> over_groups(const KernelCall& call, std::string_view role, const PerSample& first,
                                              const PerSample& second) const {
    const std::size_t count = static_cast<std::size_t>(samples_) * groups();
    PerSample both(2 * count);
    for (Index n = 0; n < samples_; ++n)
      for (std::size_t c = 0; c < channels_; ++c) {
        const std::size_t i = static_cast<std::size_t>(n) * channels_ + c;
        both[group(n, c)] += first[i];
        both[count + group(n, c)] += second[i];
      }
    call.label(role);
    if (space_ != 0 && !both.empty())
      call.grid.along(space_)
          .all_reduce(both.data(), static_cast<Index>(both.size()), DType::f64, ReduceOp::sum, call.rank.stream)
          .wait();
    const auto middle = both.begin() + static_cast<std::ptrdiff_t>(count);
    return {{both.begin(), middle}, {middle, both.end()}};
  }

  double epsilon_, count_ = 0;
  AxisSet space_ = 0;
  Index samples_ = 0;
  std::size_t channels_ = 0, a_group_ = 1;
};

}  // namespace

std::unique_ptr<Kernel> make_group_norm_kernel(const LayerPlan& layer, int rank) {
  return std::make_unique<GroupNormKernel>(layer, rank);
}

}  // namespace partita
