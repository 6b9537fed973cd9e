#pragma once

#include "partita/base/accumulator.hpp"
#include "src/backend/common/lattice.hpp"
#include "src/backend/gpu/functors/launcher.hpp"
#include "src/backend/gpu/functors/to_element.hpp"

#include <cstdint>
#include <limits>

namespace partita {

/// The windows of a pooling over the inputs in x's box.
struct PoolWindows {
  std::array<Window, 3> windows;
  Lattice x;
  bool whole;  // padding counts

  /// Calls visit(tap, offset) for the inputs in the box that an output reads, in the order of the taps.
  template <class Visit>
  PARTITA_HOST_DEVICE void for_inputs(const Position& out, const Visit& visit) const {
    if (!x.holds(0, out[0])) return;
    const Position first = first_input(windows, out);
    const Index start = x.part_of_offset(0, out[0]);
    for (Index i = 0, d = first[1]; i < windows[0].kernel; ++i, d += windows[0].dilation) {
      if (!x.holds(1, d)) continue;
      const Index plane = start + x.part_of_offset(1, d), tap_i = i * windows[1].kernel;
      for (Index j = 0, h = first[2]; j < windows[1].kernel; ++j, h += windows[1].dilation) {
        if (!x.holds(2, h)) continue;
        const Index row = plane + x.part_of_offset(2, h), tap_j = (tap_i + j) * windows[2].kernel;
        for (Index k = 0, w = first[3]; k < windows[2].kernel; ++k, w += windows[2].dilation)
          if (x.holds(3, w)) visit(tap_j + k, row + x.part_of_offset(3, w));
      }
    }
  }

  /// Calls visit(tap, out) for the outputs in y's box that read an input, in the order of the outputs.
  template <class Visit>
  PARTITA_HOST_DEVICE void for_outputs(const Lattice& y, const Position& in, const Visit& visit) const {
    if (!y.holds(0, in[0])) return;
    const Interval d = readers(windows[0], y.sides[1], in[1]), h = readers(windows[1], y.sides[2], in[2]),
                   w = readers(windows[2], y.sides[3], in[3]);
    for (Index i = d.lo; i < d.hi; ++i) {
      const Index tap_i = tap_of(windows[0], in[1], i);
      if (tap_i < 0) continue;
      for (Index j = h.lo; j < h.hi; ++j) {
        const Index tap_j = tap_of(windows[1], in[2], j);
        if (tap_j < 0) continue;
        for (Index k = w.lo; k < w.hi; ++k)
          if (const Index tap_k = tap_of(windows[2], in[3], k); tap_k >= 0)
            visit((tap_i * windows[1].kernel + tap_j) * windows[2].kernel + tap_k, Position{in[0], i, j, k});
      }
    }
  }

  /// The divisor of an average; at least 1.
  PARTITA_HOST_DEVICE Index divisor(const Position& out) const {
    if (whole) return taps_of(windows);
    const Position first = first_input(windows, out);
    Index held = x.holds(0, out[0]) ? 1 : 0;
    for (std::size_t d = 0; d < 3; ++d) held *= taps_inside(windows[d], x.sides[d + 1], first[d + 1]);
    return held > 0 ? held : 1;
  }

 private:
  PARTITA_HOST_DEVICE static Index taps_inside(const Window& window, const Interval& side, Index first) {
    Index inside = 0;
    for (Index tap = 0, at = first; tap < window.kernel; ++tap, at += window.dilation)
      inside += at >= side.lo && at < side.hi ? 1 : 0;
    return inside;
  }
  /// An interval, inside a side of y's box, that holds all outputs which read an input.
  PARTITA_HOST_DEVICE static Interval readers(const Window& window, const Interval& side, Index in) {
    const Index last = in + window.pad_lo, first = last - (window.kernel - 1) * window.dilation;
    if (last < 0) return {0, 0};
    const Interval all{first > 0 ? (first + window.stride - 1) / window.stride : 0, last / window.stride + 1};
    return {all.lo > side.lo ? all.lo : side.lo, all.hi < side.hi ? all.hi : side.hi};
  }
  /// The tap with which a reader of that interval reads an input; -1 if the input lies between two taps.
  PARTITA_HOST_DEVICE static Index tap_of(const Window& window, Index in, Index out) {
    const Index distance = in + window.pad_lo - out * window.stride;
    if (window.dilation == 1) return distance;
    return distance % window.dilation == 0 ? distance / window.dilation : -1;
  }
};

/// The first maximum over the window, or NaN if there is one; minus infinity and -1 for an empty window. A row is an
/// output.
template <class T>
struct PoolMaximum {
  PoolWindows pool;
  Positions outputs;
  Lattice to;
  const T* x;
  T* y;
  std::int32_t* picked;
  PARTITA_HOST_DEVICE void operator()(Index row, Index c) const {
    const Position out = outputs[row];
    T best = static_cast<T>(-std::numeric_limits<float>::infinity());
    std::int32_t position = -1;
    pool.for_inputs(out, [&](Index tap, Index offset) {
      const T value = x[offset + c];
      if (position >= 0 && !(value > best) && value == value) return;
      best = value;
      position = static_cast<std::int32_t>(tap);
    });
    const Index at = to.offset(out) + c;
    y[at] = best;
    picked[at] = position;
  }
};

template <class T>
struct PoolAverage {
  PoolWindows pool;
  Positions outputs;
  Lattice to;
  const T* x;
  T* y;
  PARTITA_HOST_DEVICE void operator()(Index row, Index c) const {
    using A = Accumulator<T>;
    const Position out = outputs[row];
    A sum = 0;
    pool.for_inputs(out, [&](Index /*tap*/, Index offset) { sum += static_cast<A>(x[offset + c]); });
    y[to.offset(out) + c] = to_element<T>(sum / static_cast<A>(pool.divisor(out)));
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
    T& to = dx[row * channels + c];
    A sum = static_cast<A>(to);
    pool.for_outputs(y, inputs[row], [&](Index tap, const Position& out) {
      const Index at = y.offset(out) + c;
      if (picked == nullptr)
        sum += static_cast<A>(dy[at]) / static_cast<A>(pool.divisor(out));
      else if (picked[at] == static_cast<std::int32_t>(tap))
        sum += static_cast<A>(dy[at]);
    });
    to = to_element<T>(sum);
  }
};

}  // namespace partita
