#include "partita/base/dispatch.hpp"
#include "src/backend/alike.hpp"
#include "src/backend/reference.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

namespace partita {

namespace {

/// Numbers S N C: for each of S numbers, parts and channels (norm_numbers).
struct Numbers {
  Numbers(const Tensor& tensor, Index count)
      : data(tensor.as<double>()), parts(tensor.extent('N')), channels(tensor.extent('C')) {
    require(tensor.dtype() == DType::f64 && tensor.names() == "SNC" && tensor.extent('S') == count,
            "numbers of a normalization must be an f64 tensor S N C");
  }
  /// The number s of a part, by channel.
  double* of(Index s, Index part) const { return data + (s * parts + part) * channels; }

  double* data;
  Index parts, channels;
};

/// x as parts of consecutive rows of channels, which are the innermost dimension.
struct Parts {
  Parts(const Tensor& x, const Numbers& numbers) : channels(x.extent('C')), count(numbers.parts) {
    require(x.find('C') >= 0, "x must have channels");
    require(count == 1 || count == x.extent('N'), "a part must be all of x or one sample");
    require(numbers.channels == 0 ? channels == 0 : channels % numbers.channels == 0,
            "there must be one number for each channel or group of channels");
    if (x.volume() > 0) rows = x.volume() / channels / count;
  }
  /// The offset of a part's first element.
  Index first(Index part) const { return part * rows * channels; }

  Index channels, count;
  Index rows = 0;  // of a part
};

void check_channels(const Tensor& vector, Index channels) {
  require(vector.volume() == channels, "there must be one entry per channel");
}

/// Calls f(first row, number of rows) for four rows at a time, then for the remaining rows one by one. A sum stays in
/// its register for four rows. Each channel is still summed in the order of the rows.
template <class F>
void in_fours(Index rows, F&& f) {
  Index r = 0;
  for (; r + 4 <= rows; r += 4) f(r, std::integral_constant<Index, 4>{});
  for (; r < rows; ++r) f(r, std::integral_constant<Index, 1>{});
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
  for_groups(channels, groups, [&](Index c, Index g) { values[static_cast<std::size_t>(c)] = of_groups[g]; });
  return values;
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

void ReferenceBackend::channel_sums(const Tensor& x, const Tensor& sums, Stream stream) {
  const Numbers to(sums, 2);
  const Parts size(x, to);
  require(to.channels == size.channels, "there must be one sum per channel");
  sums.zero(stream);
  dispatch_float(x.dtype(), [&](auto t) {
    for (Index part = 0; part < size.count; ++part) {
      double* __restrict first = to.of(0, part), * __restrict second = to.of(1, part);
      in_fours(size.rows, [&](Index row, auto rows) {
        const auto* from = x.as<decltype(t)>() + size.first(part) + row * size.channels;
        for (Index c = 0; c < size.channels; ++c)
          for (Index r = 0; r < rows; ++r) {
            const auto v = static_cast<double>(from[r * size.channels + c]);
            first[c] += v;
            second[c] += v * v;
          }
      });
    }
  });
}

void ReferenceBackend::channel_gradient_sums(const Tensor& x, const Tensor& dy, const Tensor& statistics,
                                             const Tensor& sums, Stream stream) {
  const Numbers to(sums, 2), of(statistics, 3);
  const Parts size(x, of);
  check_alike(x, dy);
  require(to.channels == size.channels && to.parts == size.count, "there must be one sum per part and channel");
  sums.zero(stream);
  dispatch_float(x.dtype(), [&](auto t) {
    for (Index part = 0; part < size.count; ++part) {
      const auto mean = by_channel(of.of(0, part), of.channels, size.channels),
                 inverse = by_channel(of.of(2, part), of.channels, size.channels);
      const double *center = mean.data(), *by = inverse.data();
      double* __restrict first = to.of(0, part), * __restrict second = to.of(1, part);
      in_fours(size.rows, [&](Index row, auto rows) {
        const Index start = size.first(part) + row * size.channels;
        const auto *value = x.as<decltype(t)>() + start, *gradient = dy.as<decltype(t)>() + start;
        for (Index c = 0; c < size.channels; ++c)
          for (Index r = 0; r < rows; ++r) {
            const auto g = static_cast<double>(gradient[r * size.channels + c]);
            first[c] += g;
            second[c] += g * (static_cast<double>(value[r * size.channels + c]) - center[c]) * by[c];
          }
      });
    }
  });
}

void ReferenceBackend::group_channels(const Tensor& sums, const Tensor& scale, const Tensor& grouped, Stream stream) {
  const Numbers from(sums, 2), to(grouped, 2);
  require(from.parts == to.parts, "a group must keep its part");
  require(to.channels == 0 ? from.channels == 0 : from.channels % to.channels == 0, "groups must divide the channels");
  if (scale) check_channels(scale, from.channels);
  const auto factors = scale ? values_of(scale) : std::vector<double>(static_cast<std::size_t>(from.channels), 1.0);
  grouped.zero(stream);
  for (Index s = 0; s < 2; ++s)
    for (Index part = 0; part < from.parts; ++part)
      for_groups(from.channels, to.channels, [&](Index c, Index g) {
        to.of(s, part)[g] += from.of(s, part)[c] * factors[static_cast<std::size_t>(c)];
      });
}

void ReferenceBackend::add_parts(const Tensor& sums, Index s, const Tensor& total, Stream) {
  const Numbers from(sums, 2);
  check_channels(total, from.channels);
  for (Index c = 0; c < from.channels; ++c) {
    double sum = 0;
    for (Index part = 0; part < from.parts; ++part) sum += from.of(s, part)[c];
    total.set(c, total.get(c) + sum);
  }
}

void ReferenceBackend::norm_statistics(const Tensor& sums, Index count, double epsilon, const Tensor& statistics,
                                       Stream) {
  const Numbers from(sums, 2), to(statistics, 3);
  require(from.parts == to.parts && from.channels == to.channels, "sums and statistics must be of the same channels");
  const auto elements = static_cast<double>(count);
  for (Index i = 0; i < to.parts * to.channels; ++i) {
    const double mean = count > 0 ? from.of(0, 0)[i] / elements : 0;
    const double variance = count > 0 ? std::max(from.of(1, 0)[i] / elements - mean * mean, 0.0) : 1;
    to.of(0, 0)[i] = mean;
    to.of(1, 0)[i] = variance;
    to.of(2, 0)[i] = 1 / std::sqrt(variance + epsilon);
  }
}

void ReferenceBackend::given_statistics(const Tensor& mean, const Tensor& variance, double epsilon,
                                        const Tensor& statistics, Stream) {
  const Numbers to(statistics, 3);
  require(to.parts == 1, "given statistics are those of all of x");
  check_channels(mean, to.channels);
  check_channels(variance, to.channels);
  for (Index c = 0; c < to.channels; ++c) {
    to.of(0, 0)[c] = mean.get(c);
    to.of(1, 0)[c] = variance.get(c);
    to.of(2, 0)[c] = 1 / std::sqrt(variance.get(c) + epsilon);
  }
}

// Sorted by x: y = factor * x + offset
void ReferenceBackend::norm_forward(const Tensor& x, const Tensor& statistics, const Tensor& scale, const Tensor& shift,
                                    const Tensor& y, Stream) {
  const Numbers of(statistics, 3);
  const Parts size(x, of);
  check_alike(x, y);
  check_channels(scale, size.channels);
  check_channels(shift, size.channels);
  const auto scales = values_of(scale), shifts = values_of(shift);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    for (Index part = 0; part < size.count; ++part) {
      std::vector<double> factor = scales, offset = shifts;
      for_groups(size.channels, of.channels, [&](Index c, Index g) {
        const auto i = static_cast<std::size_t>(c);
        factor[i] *= of.of(2, part)[g];
        offset[i] -= of.of(0, part)[g] * factor[i];
      });
      const auto a = to_accumulators<A>(factor), b = to_accumulators<A>(offset);
      const A *p = a.data(), *q = b.data();
      const T* from = x.as<T>() + size.first(part);
      T* to = y.as<T>() + size.first(part);
      for (Index r = 0; r < size.rows; ++r, from += size.channels, to += size.channels)
        for (Index c = 0; c < size.channels; ++c) to[c] = static_cast<T>(p[c] * static_cast<A>(from[c]) + q[c]);
    }
  });
}

// Sorted by dy and x: dx = a * dy + b * x + c
void ReferenceBackend::norm_backward(const Tensor& x, const Tensor& dy, const Tensor& statistics, const Tensor& sums,
                                     bool scaled, const Tensor& scale, Index count, const Tensor& dx, Stream) {
  const Numbers of(statistics, 3), totals(sums, 2);
  const Parts size(x, of);
  check_alike(x, dy);
  check_alike(x, dx);
  check_channels(scale, size.channels);
  require(totals.parts == of.parts && totals.channels == of.channels, "sums and statistics must be of the same groups");
  const auto scales = values_of(scale);
  const double elements = count > 0 ? static_cast<double>(count) : 1.0;
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    for (Index part = 0; part < size.count; ++part) {
      std::vector<double> a = scales, b(scales.size()), c(scales.size());
      for_groups(size.channels, of.channels, [&](Index channel, Index g) {
        const auto i = static_cast<std::size_t>(channel);
        const double r = of.of(2, part)[g];
        a[i] *= r;
        const double of_sums = scaled ? r : a[i];
        b[i] = -of_sums * r * totals.of(1, part)[g] / elements;
        c[i] = -of_sums * totals.of(0, part)[g] / elements - b[i] * of.of(0, part)[g];
      });
      const auto of_dy = to_accumulators<A>(a), of_x = to_accumulators<A>(b), of_one = to_accumulators<A>(c);
      const A *p = of_dy.data(), *q = of_x.data(), *s = of_one.data();
      const T *value = x.as<T>() + size.first(part), *gradient = dy.as<T>() + size.first(part);
      T* to = dx.as<T>() + size.first(part);
      for (Index r = 0; r < size.rows; ++r, value += size.channels, gradient += size.channels, to += size.channels)
        for (Index i = 0; i < size.channels; ++i)
          to[i] = static_cast<T>(p[i] * static_cast<A>(gradient[i]) + q[i] * static_cast<A>(value[i]) + s[i]);
    }
  });
}

}  // namespace partita
