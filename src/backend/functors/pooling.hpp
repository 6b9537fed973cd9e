#pragma once

#include "partita/base/accumulator.hpp"
#include "src/backend/functors/launcher.hpp"
#include "src/backend/lattice.hpp"

#include <cstdint>
#include <limits>

namespace partita {

/// The windows of a pooling over the inputs in x's box.
struct PoolWindows {
  std::array<Window, 3> windows;
  Lattice x;
  bool whole;  // padding counts

  PARTITA_HOST_DEVICE Index taps() const { return taps_of(windows); }
  PARTITA_HOST_DEVICE Position input(const Position& out, Index tap) const { return input_of(windows, out, tap); }
  /// The divisor of an average; at least 1.
  PARTITA_HOST_DEVICE Index divisor(const Position& out) const {
    if (whole) return taps();
    Index held = 0;
    for (Index tap = 0; tap < taps(); ++tap) held += x.holds(input(out, tap)) ? 1 : 0;
    return held > 0 ? held : 1;
  }
};

/// The first maximum over the window, or NaN if there is one; minus infinity and -1 for an empty window. A row is an
/// output.
template <class T>
struct PoolMaximum {
  PoolWindows pool;
  Positions outputs;
  const T* x;
  T* y;
  std::int32_t* picked;
  Index channels;
  PARTITA_HOST_DEVICE void operator()(Index row, Index c) const {
    const Position out = outputs[row];
    T best = static_cast<T>(-std::numeric_limits<float>::infinity());
    std::int32_t position = -1;
    for (Index tap = 0; tap < pool.taps(); ++tap) {
      const Position in = pool.input(out, tap);
      if (!pool.x.holds(in)) continue;
      const T value = x[pool.x.offset(in) + c];
      if (position >= 0 && !(value > best) && value == value) continue;
      best = value;
      position = static_cast<std::int32_t>(tap);
    }
    y[row * channels + c] = best;
    picked[row * channels + c] = position;
  }
};

template <class T>
struct PoolAverage {
  PoolWindows pool;
  Positions outputs;
  const T* x;
  T* y;
  Index channels;
  PARTITA_HOST_DEVICE void operator()(Index row, Index c) const {
    using A = Accumulator<T>;
    const Position out = outputs[row];
    A sum = 0;
    for (Index tap = 0; tap < pool.taps(); ++tap)
      if (const Position in = pool.input(out, tap); pool.x.holds(in)) sum += static_cast<A>(x[pool.x.offset(in) + c]);
    y[row * channels + c] = static_cast<T>(sum / static_cast<A>(pool.divisor(out)));
  }
};

/// Adds to one input what the outputs that read it give back. A row is an input. `picked` is null for an average.
template <class T>
struct PoolBackward {
  PoolWindows pool;
  Positions inputs;
  Lattice y;
  const T* dy;
  const std::int32_t* picked;
  T* dx;
  Index channels;
  PARTITA_HOST_DEVICE void operator()(Index row, Index c) const {
    using A = Accumulator<T>;
    const Position in = inputs[row];
    T& to = dx[row * channels + c];
    A sum = static_cast<A>(to);
    for (Index tap = pool.taps(); tap-- > 0;) {  // so that the outputs come in order
      Position out{};
      if (!find_output(pool.windows, y, in, tap, out)) continue;
      const Index at = y.offset(out) + c;
      if (picked == nullptr)
        sum += static_cast<A>(dy[at]) / static_cast<A>(pool.divisor(out));
      else if (picked[at] == static_cast<std::int32_t>(tap))
        sum += static_cast<A>(dy[at]);
    }
    to = static_cast<T>(sum);
  }
};

}  // namespace partita
