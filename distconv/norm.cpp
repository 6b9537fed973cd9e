#include "partita/distconv/norm.hpp"

#include <cmath>

namespace partita {

namespace {

/// Sums both vectors in one all-reduce.
void sum_over(Communicator* ranks, std::vector<double>& both, Stream stream) {
  if (ranks != nullptr && ranks->size() > 1 && !both.empty())
    ranks->all_reduce(both.data(), static_cast<Index>(both.size()), DType::f64, ReduceOp::sum, stream).wait();
}

std::size_t channels_of(const Tensor& x) { return static_cast<std::size_t>(x.extent('C')); }

ChannelSums halves(std::vector<double>& both) {
  const std::span<double> all(both);
  return {all.first(both.size() / 2), all.last(both.size() / 2)};
}

std::vector<double> values(const Tensor& vector) {
  std::vector<double> out(static_cast<std::size_t>(vector.volume()));
  for (std::size_t c = 0; c < out.size(); ++c) out[c] = vector.get(static_cast<Index>(c));
  return out;
}

}  // namespace

NormStatistics batch_statistics(Backend& backend, Communicator* ranks, const Tensor& x, Index count, double epsilon,
                                Stream stream) {
  const std::size_t channels = channels_of(x);
  std::vector<double> both(2 * channels);
  backend.channel_sums(x, halves(both), stream);
  sum_over(ranks, both, stream);
  NormStatistics statistics{std::vector<double>(channels), std::vector<double>(channels, 1.0),
                            std::vector<double>(channels), count};
  for (std::size_t c = 0; c < channels; ++c) {
    if (count > 0) {
      const double mean = both[c] / static_cast<double>(count);
      statistics.mean[c] = mean;
      statistics.variance[c] = std::max(both[channels + c] / static_cast<double>(count) - mean * mean, 0.0);
    }
    statistics.inverse_deviation[c] = 1 / std::sqrt(statistics.variance[c] + epsilon);
  }
  return statistics;
}

NormStatistics running_statistics(const Tensor& mean, const Tensor& variance, double epsilon) {
  NormStatistics statistics{values(mean), values(variance), {}, 0};
  for (const double v : statistics.variance) statistics.inverse_deviation.push_back(1 / std::sqrt(v + epsilon));
  return statistics;
}

void norm_forward(Backend& backend, const NormStatistics& statistics, const Tensor& x, const Tensor& scale,
                  const Tensor& shift, const Tensor& y, Stream stream) {
  std::vector<double> factor = values(scale), offset = values(shift);
  for (std::size_t c = 0; c < factor.size(); ++c) {
    factor[c] *= statistics.inverse_deviation[c];
    offset[c] -= statistics.mean[c] * factor[c];
  }
  backend.channel_affine(x, factor, offset, y, stream);
}

NormGradientSums norm_gradient_sums(Backend& backend, Communicator* ranks, const NormStatistics& statistics,
                                    const Tensor& x, const Tensor& dy, Stream stream) {
  std::vector<double> both(2 * channels_of(x));
  backend.channel_gradient_sums(x, dy, statistics.mean, statistics.inverse_deviation, halves(both), stream);
  sum_over(ranks, both, stream);
  const auto middle = both.begin() + static_cast<std::ptrdiff_t>(both.size() / 2);
  return {{both.begin(), middle}, {middle, both.end()}};
}

// The formula in the header, sorted by dy and x: dx = a * dy + b * x + c
void norm_backward(Backend& backend, const NormStatistics& statistics, const NormGradientSums& sums, const Tensor& x,
                   const Tensor& dy, const Tensor& scale, const Tensor& dx, Stream stream) {
  std::vector<double> a = values(scale), b(a.size()), c(a.size());
  const double count = statistics.count > 0 ? static_cast<double>(statistics.count) : 1.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] *= statistics.inverse_deviation[i];
    b[i] = -a[i] * statistics.inverse_deviation[i] * sums.dy_xhat[i] / count;
    c[i] = -a[i] * sums.dy[i] / count - b[i] * statistics.mean[i];
  }
  backend.channel_affine_backward(x, dy, a, b, c, dx, stream);
}

}  // namespace partita
