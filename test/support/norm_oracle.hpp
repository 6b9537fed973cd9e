#pragma once

#include "partita/backend/backend.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace partita::test {

/// The extents of x[N C P], where P stands for all spatial positions, and what shares statistics: a part is all samples
/// or one, a group some neighboring channels.
struct NormShape {
  Index samples = 1, channels = 1, points = 1, parts = 1, groups = 1;
  Index volume() const { return samples * channels * points; }
  Index channel(Index i) const { return i / points % channels; }
  /// The number of the part and group of the element i, in the order N C P.
  std::size_t group(Index i) const {
    const Index part = parts == 1 ? 0 : i / (points * channels);
    return static_cast<std::size_t>(part * groups + channel(i) / (channels / groups));
  }
};

/// The statistics of x on one rank.
inline Tensor statistics_of(Backend& backend, const Tensor& x, Index parts, Index groups, double epsilon) {
  const Index channels = x.extent('C');
  const auto numbers = [&](Index count, Index of) { return norm_numbers(x, count, parts, of, MemoryClass::workspace); };
  const Tensor sums = numbers(2, channels), grouped = numbers(2, groups), moments = numbers(4, groups),
               statistics = numbers(3, groups);
  backend.channel_sums(x, groups, sums, {});
  backend.group_channels(sums, {}, grouped, {});
  const Index count = x.volume() / std::max<Index>(parts * groups, 1);
  backend.norm_moments(x, grouped, count, count, moments, {});
  backend.norm_statistics(moments, count, epsilon, {}, statistics, {});
  return statistics;
}

/// Normalization and its gradients by two passes in long double, where a large mean costs no accuracy: the first for
/// the means, the second for the variances. Elements have the order N C P.
class NormOracle {
 public:
  using Values = std::vector<long double>;
  NormOracle(const NormShape& shape, const Values& x, const Values& dy, const Values& scale, const Values& shift,
             double epsilon)
      : mean(static_cast<std::size_t>(shape.parts * shape.groups)),
        variance(mean.size()),
        y(x.size()),
        dx(x.size()),
        dscale(scale.size()),
        dshift(scale.size()),
        shape_(shape),
        y_terms_(x.size()),
        dx_terms_(x.size()) {
    const auto count = static_cast<long double>(x.size()) / static_cast<long double>(mean.size());
    Values first(mean.size());  // a mean of equal numbers is this number
    for (auto i = x.size(); i-- > 0;) first[shape.group(static_cast<Index>(i))] = x[i];
    each([&](std::size_t i, std::size_t, std::size_t g) { mean[g] += (x[i] - first[g]) / count; });
    for (std::size_t g = 0; g < mean.size(); ++g) mean[g] += first[g];
    each(
        [&](std::size_t i, std::size_t, std::size_t g) { variance[g] += (x[i] - mean[g]) * (x[i] - mean[g]) / count; });
    Values of_dy(mean.size()), of_products(mean.size());
    const auto r = [&](std::size_t g) { return 1 / std::sqrt(variance[g] + static_cast<long double>(epsilon)); };
    each([&](std::size_t i, std::size_t c, std::size_t g) {
      const long double xhat = (x[i] - mean[g]) * r(g);
      y[i] = scale[c] * xhat + shift[c];
      y_terms_[i] = 4 * std::abs(scale[c] * xhat) + 2 * std::abs(shift[c]) + lost(scale[c] * r(g) * mean[g]);
      dscale[c] += dy[i] * xhat;
      dshift[c] += dy[i];
      of_dy[g] += scale[c] * dy[i] / count;
      of_products[g] += scale[c] * dy[i] * xhat / count;
    });
    each([&](std::size_t i, std::size_t c, std::size_t g) {
      const long double a = scale[c] * r(g) * dy[i], one = -r(g) * of_dy[g], slope = -r(g) * r(g) * of_products[g];
      dx[i] = a + slope * (x[i] - mean[g]) + one;
      dx_terms_[i] =
          4 * std::abs(a) + 5 * std::abs(slope * (x[i] - mean[g])) + 2 * std::abs(one) + lost(slope * mean[g]);
    });
  }

  /// What f32 may lose of y and of dx, by docs/decisions/032-stable-normalization.md, and the allowed error of f64.
  double y_bound(std::size_t i) const { return static_cast<double>(half_ulp * y_terms_[i]) + rounding; }
  double dx_bound(std::size_t i) const { return static_cast<double>(half_ulp * dx_terms_[i]) + rounding; }

  static constexpr double rounding = 1e-9, half_ulp = 0x1p-24;
  Values mean, variance, y, dx, dscale, dshift;

 private:
  /// In units of half_ulp, what the low part of a mean adds.
  static long double lost(long double of_mean) { return 14 * half_ulp * std::abs(of_mean); }
  template <class F>
  void each(F&& f) const {
    for (Index i = 0; i < shape_.volume(); ++i)
      f(static_cast<std::size_t>(i), static_cast<std::size_t>(shape_.channel(i)), shape_.group(i));
  }

  NormShape shape_;
  Values y_terms_, dx_terms_;
};

}  // namespace partita::test
