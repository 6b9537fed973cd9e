#pragma once

#include "partita/base/host_device.hpp"
#include "partita/base/types.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace partita {

/// A number as the sum of two of which the low one is less than a unit in the high one's last place: 106 bits (Dekker,
/// "A Floating-Point Technique for Extending the Available Precision", 1971).
struct TwoDoubles {
  double high = 0, low = 0;
};

/// a + b without an error (Knuth, The Art of Computer Programming 2, 4.2.2).
PARTITA_HOST_DEVICE inline TwoDoubles exact_sum(double a, double b) {
  const double sum = a + b, of_b = sum - a;
  return {sum, (a - (sum - of_b)) + (b - of_b)};
}

/// a * b without an error, unless its low part is below the least double.
PARTITA_HOST_DEVICE inline TwoDoubles exact_product(double a, double b) {
  const double product = a * b;
  return {product, std::fma(a, b, -product)};
}

PARTITA_HOST_DEVICE inline TwoDoubles operator+(const TwoDoubles& a, const TwoDoubles& b) {
  const TwoDoubles high = exact_sum(a.high, b.high);
  return exact_sum(high.high, high.low + (a.low + b.low));
}

PARTITA_HOST_DEVICE inline TwoDoubles operator*(const TwoDoubles& a, double b) {
  const TwoDoubles high = exact_product(a.high, b);
  return exact_sum(high.high, std::fma(a.low, b, high.low));
}

/// Returns the center about which a rank sums `elements` elements: the median of three that are evenly spread, so that
/// a single one far from the others does no harm; 0 if there are none. element(i) returns element i.
template <class Element>
PARTITA_HOST_DEVICE double center_of_sums(Index elements, const Element& element) {
  if (elements == 0) return 0;
  const double a = element(0), b = element(elements / 3), c = element(2 * elements / 3);
  const double low = a < b ? a : b, high = a < b ? b : a;
  return c < low ? low : c > high ? high : c;
}

/// The sums of d and of d² over some elements.
struct Moments {
  TwoDoubles first, second;
};

/// Returns the sums of d + by and of (d + by)², from those of d and d² over `count` elements.
PARTITA_HOST_DEVICE inline Moments moved(const Moments& of, double count, double by) {
  const TwoDoubles all = exact_product(count, by);
  return {of.first + all, of.second + of.first * (2 * by) + all * by};
}

/// Splits a rank's share of a sum in two, a multiple of a unit and the rest. The unit is 2^-40 of what the sum would be
/// if all elements were like those of this rank, which has one in `shares`. The multiples of ranks that have similar
/// elements add up without an error, in any order, since their sum has less than 53 bits. The rests are small, and so
/// are the errors of their sum.
PARTITA_HOST_DEVICE inline TwoDoubles split_share(const TwoDoubles& sum, double shares) {
  constexpr std::uint64_t exponent = std::uint64_t(0x7ff) << 52U;
  const double whole = std::bit_cast<double>(std::bit_cast<std::uint64_t>(sum.high * shares) & exponent);
  const double shift = whole * 0x1.8p12;  // its last place is 2^-40 of `whole`
  const double multiple = (sum.high + shift) - shift;
  return {multiple, (sum.high - multiple) + sum.low};
}

/// Returns the moments of the numbers of which a rank has `own` of `count`, as four numbers that add up over ranks: the
/// two parts of the sum of x and those of the sum of x^2. `first` and `second` are the sums of x - center and of its
/// square.
PARTITA_HOST_DEVICE inline std::array<double, 4> shared_moments(double first, double second, double center, double own,
                                                                double count) {
  const Moments sums = moved({{first, 0}, {second, 0}}, own, center);
  const double shares = own > 0 ? count / own : 1;
  const TwoDoubles x = split_share(sums.first, shares), square = split_share(sums.second, shares);
  return {x.high, x.low, square.high, square.low};
}

struct MeanAndVariance {
  double mean, variance;
};

/// Returns the statistics of `count` numbers from sums of shared_moments: a mean of 0 and a variance of 1 if there are
/// none. The variance is the mean of d^2 less the square of the mean of d, with d = x - mean, as far as one double
/// holds the mean. Rounding may leave less than 0, which counts as 0; NaN stays.
PARTITA_HOST_DEVICE inline MeanAndVariance statistics_of(const std::array<double, 4>& sums, double count) {
  if (!(count > 0)) return {0, 1};
  const Moments about_zero{exact_sum(sums[0], sums[1]), exact_sum(sums[2], sums[3])};
  const double mean = about_zero.first.high / count;
  const Moments about_mean = moved(about_zero, count, -mean);
  const double d = about_mean.first.high / count, variance = about_mean.second.high / count - d * d;
  return {mean + d, variance < 0 ? 0 : variance};
}

}  // namespace partita
