#include "partita/base/dispatch.hpp"
#include "src/backend/alike.hpp"
#include "src/backend/reference.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

namespace partita {

namespace {

/// The elements of x as rows of channels, which are the innermost dimension.
struct Rows {
  Index rows, channels;
  explicit Rows(const Tensor& x) : rows(0), channels(x.extent('C')) {
    require(x.find('C') >= 0, "x must have channels");
    if (x.volume() > 0) rows = x.volume() / channels;
  }
};

void check_channels(std::size_t entries, Index channels) {
  require(entries == static_cast<std::size_t>(channels), "there must be one entry per channel");
}

/// Calls f(first row, number of rows) for four rows at a time, then for the remaining rows one by one. A sum stays in
/// its register for four rows. Each channel is still summed in the order of the rows.
template <class F>
void in_fours(Index rows, F&& f) {
  Index r = 0;
  for (; r + 4 <= rows; r += 4) f(r, std::integral_constant<Index, 4>{});
  for (; r < rows; ++r) f(r, std::integral_constant<Index, 1>{});
}

template <class A>
std::vector<A> to_accumulators(std::span<const double> values) {
  std::vector<A> to(values.size());
  std::transform(values.begin(), values.end(), to.begin(), [](double v) { return static_cast<A>(v); });
  return to;
}

}  // namespace

void ReferenceBackend::check(DType dtype) const {
  if (dtype == DType::i32) fail("backend 'reference' computes in f64, f32, bf16 and f16, not in i32");
}

void ReferenceBackend::bias_forward(const Tensor& bias, const Tensor& y, Stream) {
  const Rows size(y);
  require(bias.volume() == size.channels && bias.dtype() == y.dtype(),
          "there must be one bias per channel, in y's dtype");
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    T* to = y.as<T>();
    for (Index r = 0; r < size.rows; ++r, to += size.channels)
      for (Index c = 0; c < size.channels; ++c)
        to[c] = static_cast<T>(static_cast<A>(to[c]) + static_cast<A>(bias.as<T>()[c]));
  });
}

void ReferenceBackend::bias_backward(const Tensor& dy, const Tensor& db, Write write, Stream) {
  const Rows size(dy);
  require(db.volume() == size.channels && db.dtype() == dy.dtype(),
          "there must be one bias per channel, in dy's dtype");
  std::vector<double> sums(static_cast<std::size_t>(size.channels));
  dispatch_float(dy.dtype(), [&](auto t) {
    using T = decltype(t);
    const T* from = dy.as<T>();
    for (Index r = 0; r < size.rows; ++r, from += size.channels)
      for (Index c = 0; c < size.channels; ++c) sums[static_cast<std::size_t>(c)] += static_cast<double>(from[c]);
    for (Index c = 0; c < size.channels; ++c) {
      const double before = write == Write::add ? static_cast<double>(db.as<T>()[c]) : 0;
      db.as<T>()[c] = static_cast<T>(before + sums[static_cast<std::size_t>(c)]);
    }
  });
}

void ReferenceBackend::channel_sums(const Tensor& x, ChannelSums sums, Stream) {
  const Rows size(x);
  check_channels(sums.first.size(), size.channels);
  check_channels(sums.second.size(), size.channels);
  double* __restrict first = sums.first.data(), * __restrict second = sums.second.data();
  std::fill_n(first, size.channels, 0.0);
  std::fill_n(second, size.channels, 0.0);
  dispatch_float(x.dtype(), [&](auto t) {
    in_fours(size.rows, [&](Index row, auto rows) {
      const auto* from = x.as<decltype(t)>() + row * size.channels;
      for (Index c = 0; c < size.channels; ++c)
        for (Index r = 0; r < rows; ++r) {
          const auto v = static_cast<double>(from[r * size.channels + c]);
          first[c] += v;
          second[c] += v * v;
        }
    });
  });
}

void ReferenceBackend::channel_gradient_sums(const Tensor& x, const Tensor& dy, std::span<const double> mean,
                                             std::span<const double> inverse_deviation, ChannelSums sums, Stream) {
  const Rows size(x);
  check_alike(x, dy);
  for (const auto entries : {sums.first.size(), sums.second.size(), mean.size(), inverse_deviation.size()})
    check_channels(entries, size.channels);
  double* __restrict first = sums.first.data(), * __restrict second = sums.second.data();
  const double *center = mean.data(), *by = inverse_deviation.data();
  std::fill_n(first, size.channels, 0.0);
  std::fill_n(second, size.channels, 0.0);
  dispatch_float(x.dtype(), [&](auto t) {
    in_fours(size.rows, [&](Index row, auto rows) {
      const auto* value = x.as<decltype(t)>() + row * size.channels;
      const auto* gradient = dy.as<decltype(t)>() + row * size.channels;
      for (Index c = 0; c < size.channels; ++c)
        for (Index r = 0; r < rows; ++r) {
          const auto g = static_cast<double>(gradient[r * size.channels + c]);
          first[c] += g;
          second[c] += g * (static_cast<double>(value[r * size.channels + c]) - center[c]) * by[c];
        }
    });
  });
}

void ReferenceBackend::channel_affine(const Tensor& x, std::span<const double> scale, std::span<const double> shift,
                                      const Tensor& y, Stream) {
  const Rows size(x);
  check_alike(x, y);
  check_channels(scale.size(), size.channels);
  check_channels(shift.size(), size.channels);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const auto factors = to_accumulators<A>(scale), summands = to_accumulators<A>(shift);
    const A *factor = factors.data(), *summand = summands.data();
    const T* from = x.as<T>();
    T* to = y.as<T>();
    for (Index r = 0; r < size.rows; ++r, from += size.channels, to += size.channels)
      for (Index c = 0; c < size.channels; ++c)
        to[c] = static_cast<T>(factor[c] * static_cast<A>(from[c]) + summand[c]);
  });
}

void ReferenceBackend::channel_affine_backward(const Tensor& x, const Tensor& dy, std::span<const double> a,
                                               std::span<const double> b, std::span<const double> c, const Tensor& dx,
                                               Stream) {
  const Rows size(x);
  check_alike(x, dy);
  check_alike(x, dx);
  for (const auto entries : {a.size(), b.size(), c.size()}) check_channels(entries, size.channels);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const auto of_dy = to_accumulators<A>(a), of_x = to_accumulators<A>(b), of_one = to_accumulators<A>(c);
    const A *p = of_dy.data(), *q = of_x.data(), *s = of_one.data();
    const T *value = x.as<T>(), *gradient = dy.as<T>();
    T* to = dx.as<T>();
    for (Index r = 0; r < size.rows; ++r, value += size.channels, gradient += size.channels, to += size.channels)
      for (Index i = 0; i < size.channels; ++i)
        to[i] = static_cast<T>(p[i] * static_cast<A>(gradient[i]) + q[i] * static_cast<A>(value[i]) + s[i]);
  });
}

}  // namespace partita
