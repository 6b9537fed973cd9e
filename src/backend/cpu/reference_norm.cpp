#include "partita/base/dispatch.hpp"
#include "src/backend/common/activation_functions.hpp"
#include "src/backend/common/alike.hpp"
#include "src/backend/common/center_of.hpp"
#include "src/backend/common/moments.hpp"
#include "src/backend/common/norm_checks.hpp"
#include "src/backend/cpu/reference.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <vector>

namespace partita {

namespace {

/// Numbers S N C: for each of S numbers, parts and channels (norm_numbers).
struct Numbers : NormExtents {
  Numbers(const Tensor& tensor, Index count) : NormExtents(norm_extents(tensor, count)), data(tensor.as<double>()) {}
  /// The number s of a part, by channel.
  double* of(Index s, Index part) const { return data + (s * parts + part) * channels; }

  double* data;
};

/// The offset of a part's first element in x.
Index first_of(const NormParts& size, Index part) { return part * size.rows * size.channels; }

/// Calls f(first row, number of rows) for four rows at a time, then for the remaining rows one by one. A sum stays in
/// its register for four rows. Each channel is still summed in the order of the rows.
template <class F>
void in_fours(Index rows, F&& f) {
  Index r = 0;
  for (; r + 4 <= rows; r += 4) f(r, std::integral_constant<Index, 4>{});
  for (; r < rows; ++r) f(r, std::integral_constant<Index, 1>{});
}

using Relu = ActivationFunction<Activation::Kind::relu>;

/// Calls f(std::true_type) or f(std::false_type), so that loops test nothing.
template <class F>
void dispatch_flag(bool flag, F&& f) {
  flag ? f(std::true_type{}) : f(std::false_type{});
}

/// The gradient of an element whose output is y: where ReLU was computed with it (`masks`), 0 for an output of 0.
template <bool masks, class A, class T>
A passed(T dy, T y) {
  const auto gradient = static_cast<A>(dy);
  if constexpr (masks) return Relu::gradient(static_cast<A>(y), gradient, A(0));
  return gradient;
}

/// The outputs that mask a gradient; any numbers if none do.
template <class T>
const T* mask_of(const MaskedGradient& dy) {
  return dy.y ? dy.y.as<T>() : dy.dy.as<T>();
}

// The loops over rows. Their arrays do not overlap, so the compiler turns them into vector instructions.

template <Index rows, class T>
void sum_rows(Index channels, const T* __restrict x, const double* __restrict center, double* __restrict first,
              double* __restrict second) {
  for (Index c = 0; c < channels; ++c)
    for (Index r = 0; r < rows; ++r) {
      const double d = static_cast<double>(x[r * channels + c]) - center[c];
      first[c] += d;
      second[c] += d * d;
    }
}

template <Index rows, class T>
void sum_gradient_rows(Index channels, const T* __restrict x, const T* __restrict dy, const double* __restrict mean,
                       const double* __restrict by, double* __restrict first, double* __restrict second) {
  for (Index c = 0; c < channels; ++c)
    for (Index r = 0; r < rows; ++r) {
      const auto g = static_cast<double>(dy[r * channels + c]);
      first[c] += g;
      second[c] += g * (static_cast<double>(x[r * channels + c]) - mean[c]) * by[c];
    }
}

/// masked = passed(dy). GCC does not vectorize sum_gradient_rows with this choice inside.
template <class T>
void mask_gradients(Index count, const T* __restrict dy, const T* __restrict y, T* __restrict masked) {
  for (Index i = 0; i < count; ++i) masked[i] = static_cast<T>(passed<true, Accumulator<T>>(dy[i], y[i]));
}

/// y = factor * (x - center) + offset, or ReLU of it
template <bool relu, class T, class A>
void forward_rows(Index rows, Index channels, const T* __restrict x, T* __restrict y, const A* __restrict center,
                  const A* __restrict factor, const A* __restrict offset) {
  for (Index r = 0; r < rows; ++r, x += channels, y += channels)
    for (Index c = 0; c < channels; ++c) {
      const A value = factor[c] * (static_cast<A>(x[c]) - center[c]) + offset[c];
      y[c] = static_cast<T>(relu ? Relu::value(value, A(0)) : value);
    }
}

/// dx = of_dy * dy + of_x * (x - center) + of_one
template <bool masks, class T, class A>
void backward_rows(Index rows, Index channels, const T* __restrict x, const T* __restrict dy, const T* __restrict y,
                   T* __restrict dx, const A* __restrict center, const A* __restrict of_dy, const A* __restrict of_x,
                   const A* __restrict of_one) {
  for (Index r = 0; r < rows; ++r, x += channels, dy += channels, y += channels, dx += channels)
    for (Index c = 0; c < channels; ++c)
      dx[c] = static_cast<T>(of_dy[c] * passed<masks, A>(dy[c], y[c]) + of_x[c] * (static_cast<A>(x[c]) - center[c]) +
                             of_one[c]);
}

/// Calls f(c, g) for each channel c and its group g.
template <class F>
void for_groups(Index channels, Index groups, F&& f) {
  const Index size = groups == 0 ? 1 : channels / groups;
  for (Index c = 0; c < channels; ++c) f(c, c / size);
}

/// Returns the numbers of one part by channel: each channel gets its group's.
std::vector<double> by_channel(const double* of_groups, Index groups, Index channels) {
  std::vector<double> values(static_cast<std::size_t>(channels));
  for_groups(channels, groups, [&](Index c, Index g) { values[c] = of_groups[g]; });
  return values;
}

/// The center about which a group of a part is summed.
template <class T>
double center_of_group(const T* part, const NormParts& size, Index group) {
  return center_of_sums(size.rows * size.a_group, [&](Index i) {
    return static_cast<double>(part[i / size.a_group * size.channels + group * size.a_group + i % size.a_group]);
  });
}

/// Adds the deviations of a part's elements, and their squares, by channel.
template <class T>
void sum_part(const T* part, const NormParts& size, double* first, double* second) {
  std::vector<double> centers(static_cast<std::size_t>(size.channels));
  for (Index c = 0; c < size.channels; c += size.a_group)
    std::fill_n(centers.begin() + c, size.a_group, center_of_group(part, size, c / size.a_group));
  in_fours(size.rows, [&](Index row, auto rows) {
    sum_rows<rows>(size.channels, part + row * size.channels, centers.data(), first, second);
  });
}

void keep_statistics(const MeanAndVariance& of, double epsilon, const Numbers& to, Index i) {
  to.of(0, 0)[i] = of.mean;
  to.of(1, 0)[i] = of.variance;
  to.of(2, 0)[i] = 1 / std::sqrt(of.variance + epsilon);
}

/// Advances the running statistics, if there are any, by those of `count` elements.
void advance(const RunningStatistics& running, const Numbers& by, Index count) {
  if (!running.mean) return;
  check_one_part(by);
  const std::array<double, 2> factors{1, unbiased(count)};
  Index s = 0;
  for (const Tensor& kept : {running.mean, running.variance}) {
    check_channels(kept, by.channels);
    for (Index c = 0; c < by.channels; ++c)
      kept.set(c, running.keep * kept.get(c) + running.add * (factors[s] * by.of(s, 0)[c]));
    ++s;
  }
}

std::vector<double> values_of(const Tensor& vector) {
  std::vector<double> values(static_cast<std::size_t>(vector.volume()));
  for (std::size_t c = 0; c < values.size(); ++c) values[c] = vector.get(static_cast<Index>(c));
  return values;
}

template <class A>
std::vector<A> to_accumulators(const std::vector<double>& values) {
  std::vector<A> to(values.size());
  std::transform(values.begin(), values.end(), to.begin(), [](double v) { return static_cast<A>(v); });
  return to;
}

}  // namespace

void ReferenceBackend::channel_sums(const Tensor& x, Index groups, const Tensor& sums, Stream stream) {
  const Numbers to(sums, 2);
  const NormParts size = norm_parts(x, {to.parts, groups});
  check_sums(to, size);
  sums.zero(stream);
  dispatch_float(x.dtype(), [&](auto t) {
    for (Index part = 0; part < size.parts; ++part)
      sum_part(x.as<decltype(t)>() + first_of(size, part), size, to.of(0, part), to.of(1, part));
  });
}

void ReferenceBackend::channel_gradient_sums(const Tensor& x, const MaskedGradient& dy, const Tensor& statistics,
                                             const Tensor& sums, Stream stream) {
  const Numbers to(sums, 2), of(statistics, 3);
  const NormParts size = norm_parts(x, of);
  check_alike(x, dy.dy);
  if (dy.y) check_alike(x, dy.y);
  check_sums(to, size);
  sums.zero(stream);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    std::vector<T> masked(static_cast<std::size_t>(dy.y ? 4 * size.channels : 0));
    for (Index part = 0; part < size.parts; ++part) {
      const auto mean = by_channel(of.of(0, part), of.channels, size.channels),
                 inverse = by_channel(of.of(2, part), of.channels, size.channels);
      in_fours(size.rows, [&](Index row, auto rows) {
        const Index start = first_of(size, part) + row * size.channels;
        const T* gradient = dy.dy.as<T>() + start;
        if (dy.y) {
          mask_gradients(rows * size.channels, gradient, dy.y.as<T>() + start, masked.data());
          gradient = masked.data();
        }
        sum_gradient_rows<rows>(size.channels, x.as<T>() + start, gradient, mean.data(), inverse.data(), to.of(0, part),
                                to.of(1, part));
      });
    }
  });
}

void ReferenceBackend::group_channels(const Tensor& sums, const Tensor& scale, const Tensor& grouped, Stream stream) {
  const Numbers from(sums, 2), to(grouped, 2);
  check_groups(from, to);
  if (scale) check_channels(scale, from.channels);
  const auto factors = scale ? values_of(scale) : std::vector<double>(static_cast<std::size_t>(from.channels), 1.0);
  grouped.zero(stream);
  for (Index s = 0; s < 2; ++s)
    for (Index part = 0; part < from.parts; ++part)
      for_groups(from.channels, to.channels,
                 [&](Index c, Index g) { to.of(s, part)[g] += from.of(s, part)[c] * factors[c]; });
}

void ReferenceBackend::norm_weight_gradients(const NormWeightGradients& to, Stream) {
  const Numbers from(to.sums, 2);
  Index s = 0;
  for (const Tensor& total : {to.dshift, to.dscale}) {
    check_channels(total, from.channels);
    for (Index c = 0; c < from.channels; ++c) {
      double sum = 0;
      for (Index part = 0; part < from.parts; ++part) sum += from.of(s, part)[c];
      total.set(c, (to.write == Write::add ? total.get(c) : 0) + sum);
    }
    ++s;
  }
}

void ReferenceBackend::norm_moments(const Tensor& x, const Tensor& sums, Index own, Index count, const Tensor& moments,
                                    Stream) {
  const Numbers from(sums, 2), to(moments, 4);
  check_same(from, to);
  const NormParts size = norm_parts(x, to);
  const auto mine = static_cast<double>(own), all = static_cast<double>(count);
  dispatch_float(x.dtype(), [&](auto t) {
    for (Index part = 0; part < to.parts; ++part)
      for (Index g = 0; g < to.channels; ++g) {
        const double center = center_of_group(x.as<decltype(t)>() + first_of(size, part), size, g);
        const auto numbers = shared_moments(from.of(0, part)[g], from.of(1, part)[g], center, mine, all);
        for (Index s = 0; s < 4; ++s) to.of(s, part)[g] = numbers[s];
      }
  });
}

void ReferenceBackend::norm_statistics(const Tensor& moments, Index count, double epsilon,
                                       const RunningStatistics& running, const Tensor& statistics, Stream) {
  const Numbers from(moments, 4), to(statistics, 3);
  check_same(from, to);
  const auto elements = static_cast<double>(count);
  for (Index i = 0; i < to.parts * to.channels; ++i)
    keep_statistics(statistics_of({from.of(0, 0)[i], from.of(1, 0)[i], from.of(2, 0)[i], from.of(3, 0)[i]}, elements),
                    epsilon, to, i);
  advance(running, to, count);
}

void ReferenceBackend::channel_statistics(const Tensor& x, double epsilon, const RunningStatistics& running,
                                          const Tensor& statistics, Stream) {
  const Numbers to(statistics, 3);
  const NormParts size = norm_parts(x, to);
  check_sums(to, size);
  const auto count = static_cast<double>(size.rows);
  dispatch_float(x.dtype(), [&](auto t) {
    for (Index part = 0; part < size.parts; ++part) {
      const auto* const values = x.as<decltype(t)>() + first_of(size, part);
      std::vector<double> first(static_cast<std::size_t>(size.channels)), second(first);
      sum_part(values, size, first.data(), second.data());
      for (Index c = 0; c < size.channels; ++c)
        keep_statistics(
            statistics_of(shared_moments(first[c], second[c], center_of_group(values, size, c), count, count), count),
            epsilon, to, part * size.channels + c);
    }
  });
  advance(running, to, size.rows);
}

void ReferenceBackend::given_statistics(const Tensor& mean, const Tensor& variance, double epsilon,
                                        const Tensor& statistics, Stream) {
  const Numbers to(statistics, 3);
  check_one_part(to);
  check_channels(mean, to.channels);
  check_channels(variance, to.channels);
  for (Index c = 0; c < to.channels; ++c) {
    to.of(0, 0)[c] = mean.get(c);
    to.of(1, 0)[c] = variance.get(c);
    to.of(2, 0)[c] = 1 / std::sqrt(variance.get(c) + epsilon);
  }
}

// y = factor * (x - center) + offset. The center is the mean, as far as the type of sums holds it; the rest of the mean
// goes into the offset (docs/decisions/032-stable-normalization.md).
void ReferenceBackend::norm_forward(const Tensor& x, const Tensor& statistics, const Tensor& scale, const Tensor& shift,
                                    bool relu, const Tensor& y, Stream) {
  const Numbers of(statistics, 3);
  const NormParts size = norm_parts(x, of);
  check_alike(x, y);
  check_channels(scale, size.channels);
  check_channels(shift, size.channels);
  const auto scales = values_of(scale), shifts = values_of(shift);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    for (Index part = 0; part < size.parts; ++part) {
      std::vector<double> factor = scales, offset = shifts;
      std::vector<double> centers(scales.size());
      for_groups(size.channels, of.channels, [&](Index c, Index g) {
        const auto i = static_cast<std::size_t>(c);
        const double mean = of.of(0, part)[g];
        centers[i] = center_of<A>(mean);
        factor[i] *= of.of(2, part)[g];
        offset[i] -= (mean - centers[i]) * factor[i];
      });
      const auto center = to_accumulators<A>(centers), a = to_accumulators<A>(factor), b = to_accumulators<A>(offset);
      dispatch_flag(relu, [&](auto follows) {
        forward_rows<decltype(follows)::value>(size.rows, size.channels, x.as<T>() + first_of(size, part),
                                               y.as<T>() + first_of(size, part), center.data(), a.data(), b.data());
      });
    }
  });
}

// dx = a * dy + b * (x - center) + c, with the center of norm_forward
void ReferenceBackend::norm_backward(const Tensor& x, const MaskedGradient& dy, const Tensor& statistics,
                                     const Tensor& sums, bool scaled, const Tensor& scale, Index count,
                                     const Tensor& dx, const NormWeightGradients& weights, Stream stream) {
  if (weights.sums) norm_weight_gradients(weights, stream);
  const Numbers of(statistics, 3), totals(sums, 2);
  const NormParts size = norm_parts(x, of);
  check_alike(x, dy.dy);
  if (dy.y) check_alike(x, dy.y);
  check_alike(x, dx);
  check_channels(scale, size.channels);
  check_same(totals, of);
  const auto scales = values_of(scale);
  const double elements = count > 0 ? static_cast<double>(count) : 1.0;
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    for (Index part = 0; part < size.parts; ++part) {
      std::vector<double> a = scales, b(scales.size()), c(scales.size());
      std::vector<double> centers(scales.size());
      for_groups(size.channels, of.channels, [&](Index channel, Index g) {
        const auto i = static_cast<std::size_t>(channel);
        const double r = of.of(2, part)[g];
        a[i] *= r;
        const double of_sums = scaled ? r : a[i];
        b[i] = -of_sums * r * totals.of(1, part)[g] / elements;
        centers[i] = center_of<A>(of.of(0, part)[g]);
        c[i] = -of_sums * totals.of(0, part)[g] / elements - b[i] * (of.of(0, part)[g] - centers[i]);
      });
      const auto center = to_accumulators<A>(centers), of_dy = to_accumulators<A>(a), of_x = to_accumulators<A>(b),
                 of_one = to_accumulators<A>(c);
      const Index start = first_of(size, part);
      dispatch_flag(static_cast<bool>(dy.y), [&](auto masks) {
        backward_rows<decltype(masks)::value>(size.rows, size.channels, x.as<T>() + start, dy.dy.as<T>() + start,
                                              mask_of<T>(dy) + start, dx.as<T>() + start, center.data(), of_dy.data(),
                                              of_x.data(), of_one.data());
      });
    }
  });
}

}  // namespace partita
