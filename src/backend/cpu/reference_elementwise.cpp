#include "partita/base/dispatch.hpp"
#include "src/backend/common/alike.hpp"
#include "src/backend/common/channel_rows.hpp"
#include "src/backend/cpu/reference.hpp"
#include "src/device/rows.hpp"

#include <array>
#include <numeric>
#include <vector>

namespace partita {

void ReferenceBackend::check(DType dtype) const {
  if (dtype == DType::i32) fail("backend 'reference' computes in f64, f32, bf16 and f16, not in i32");
}

void ReferenceBackend::bias_forward(const Tensor& bias, const Tensor& y, Stream) {
  const ChannelRows size(y);
  require(bias.volume() == size.channels && bias.dtype() == y.dtype(),
          "there must be one bias per channel, in y's dtype");
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    T* to = y.as<T>();
    const T* from = bias.as<T>();  // not in the loop, where every write to y could change it
    for (Index r = 0; r < size.rows; ++r, to += size.channels)
      for (Index c = 0; c < size.channels; ++c) to[c] = static_cast<T>(static_cast<A>(to[c]) + static_cast<A>(from[c]));
  });
}

void ReferenceBackend::bias_backward(const Tensor& dy, const Tensor& db, Write write, Stream) {
  const ChannelRows size(dy);
  require(db.volume() == size.channels && db.dtype() == dy.dtype(),
          "there must be one bias per channel, in dy's dtype");
  std::vector<double> sums(static_cast<std::size_t>(size.channels));
  dispatch_float(dy.dtype(), [&](auto t) {
    using T = decltype(t);
    const T* from = dy.as<T>();
    for (Index r = 0; r < size.rows; ++r, from += size.channels)
      for (Index c = 0; c < size.channels; ++c) sums[c] += static_cast<double>(from[c]);
    for (Index c = 0; c < size.channels; ++c) {
      const double before = write == Write::add ? static_cast<double>(db.as<T>()[c]) : 0;
      db.as<T>()[c] = static_cast<T>(before + sums[c]);
    }
  });
}

void ReferenceBackend::dropout(double rate, const Random& random, const Tensor& step, Index first, const Shape& whole,
                               const Tensor& x, const Tensor& added, const Tensor& y, Stream) {
  check_alike(x, y);
  if (added) check_alike(added, y);
  const Random numbers = random.at_step(static_cast<std::uint64_t>(step.get(0)));
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const A keep = static_cast<A>(static_cast<T>(1 / (1 - rate)));
    std::vector<double> drawn;
    for_rows(y, whole, [&](const Row& row) {
      drawn.resize(static_cast<std::size_t>(row.length));
      numbers.uniform(first + row.first, drawn);
      for (Index i = 0; i < row.length; ++i) {
        const Index at = row.offset + i * row.stride;
        const A value = (drawn[i] < rate ? A{0} : keep) * static_cast<A>(x.as<T>()[at]);
        y.as<T>()[at] = static_cast<T>(added ? static_cast<A>(added.as<T>()[at]) + value : value);
      }
    });
  });
}

void ReferenceBackend::axpby(double a, const Tensor& x, double b, const Tensor& y, Stream) {
  require(x.volume() == y.volume(), "both tensors must have as many elements");
  dispatch_float(x.dtype(), [&](auto s) {
    dispatch_float(y.dtype(), [&, count = y.volume()](auto t) {
      const auto* from = x.as<decltype(s)>();
      auto* to = y.as<decltype(t)>();
      if (b == 0)
        for (Index i = 0; i < count; ++i) to[i] = static_cast<decltype(t)>(a * static_cast<double>(from[i]));
      else
        for (Index i = 0; i < count; ++i)
          to[i] = static_cast<decltype(t)>(b * static_cast<double>(to[i]) + a * static_cast<double>(from[i]));
    });
  });
}

void ReferenceBackend::write_numbers(std::span<const double> values, const Tensor& x, Stream) {
  require(x.dtype() == DType::f64 && x.volume() == std::ssize(values), "there is a place for each number");
  std::copy(values.begin(), values.end(), x.as<double>());
}

void ReferenceBackend::add_squares(const Tensor& x, const Tensor& sum, Stream) {
  dispatch_float(x.dtype(), [&](auto t) {
    const auto* from = x.as<decltype(t)>();
    constexpr Index lanes = 16;  // independent sums, which fill vectors
    std::array<double, lanes> sums{};
    const Index count = x.volume(), whole = count - count % lanes;
    for (Index i = 0; i < whole; i += lanes)
      for (Index lane = 0; lane < lanes; ++lane) {
        const auto value = static_cast<double>(from[i + lane]);
        sums[lane] += value * value;
      }
    for (Index i = whole; i < count; ++i)
      sums[i - whole] += static_cast<double>(from[i]) * static_cast<double>(from[i]);
    *sum.as<double>() = std::accumulate(sums.begin(), sums.end(), *sum.as<double>());
  });
}

}  // namespace partita
