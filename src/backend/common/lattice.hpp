#pragma once

#include "partita/base/box.hpp"
#include "partita/base/host_device.hpp"
#include "partita/base/window.hpp"

#include <array>
#include <cstddef>
#include <span>

namespace partita {

/// The sample and the spatial position of one vector of channels: n, d, h, w in global coordinates.
using Position = std::array<Index, 4>;

/// A box without its channels, in the four dimensions N D H W. Dimensions that the box lacks are [0, 1), D before H.
inline std::array<Interval, 4> sides_of(const Box& box) {
  std::array<Interval, 4> sides{Interval{0, 1}, {0, 1}, {0, 1}, {0, 1}};
  sides[0] = box[0];
  for (int d = 2; d < box.dims(); ++d) sides[4 - box.dims() + d] = box[d];
  return sides;
}

/// The same for windows, in the dimensions D H W: a missing window has kernel 1 and stride 1.
inline std::array<Window, 3> three(std::span<const Window> windows) {
  std::array<Window, 3> all{};
  for (std::size_t i = 0; i < windows.size(); ++i) all[3 - windows.size() + i] = windows[i];
  return all;
}

/// The memory positions of a tensor's vectors of channels; the tensor is N C (D H W).
struct Lattice {
  std::array<Interval, 4> sides;
  std::array<Index, 4> strides{};

  PARTITA_HOST_DEVICE bool holds(std::size_t d, Index at) const { return at >= sides[d].lo && at < sides[d].hi; }
  PARTITA_HOST_DEVICE bool holds(const Position& at) const {
    return holds(0, at[0]) && holds(1, at[1]) && holds(2, at[2]) && holds(3, at[3]);
  }
  PARTITA_HOST_DEVICE Index part_of_offset(std::size_t d, Index at) const { return (at - sides[d].lo) * strides[d]; }
  PARTITA_HOST_DEVICE Index offset(const Position& at) const {
    Index offset = 0;
    for (std::size_t d = 0; d < 4; ++d) offset += part_of_offset(d, at[d]);
    return offset;
  }
};

/// The positions of a box, numbered with w varying fastest.
struct Positions {
  std::array<Interval, 4> sides;

  explicit Positions(const Box& box) : sides(sides_of(box)) {}
  Index count() const { return sides[0].extent() * sides[1].extent() * sides[2].extent() * sides[3].extent(); }
  PARTITA_HOST_DEVICE Position operator[](Index i) const {
    Position at{};
    for (std::size_t d = 4; d-- > 0; i /= sides[d].extent()) at[d] = sides[d].lo + i % sides[d].extent();
    return at;
  }
};

/// The input that tap (0, 0, 0) of the windows reads for an output. It may lie outside the tensor.
PARTITA_HOST_DEVICE inline Position first_input(const std::array<Window, 3>& windows, const Position& out) {
  Position in = out;
  for (std::size_t i = 0; i < 3; ++i) in[i + 1] = out[i + 1] * windows[i].stride - windows[i].pad_lo;
  return in;
}

/// The number of taps of a window.
PARTITA_HOST_DEVICE inline Index taps_of(const std::array<Window, 3>& windows) {
  return windows[0].kernel * windows[1].kernel * windows[2].kernel;
}

/// The input that a tap of the windows reads for an output. It may lie outside the tensor.
PARTITA_HOST_DEVICE inline Position input_of(const std::array<Window, 3>& windows, const Position& out, Index tap) {
  Position in = first_input(windows, out);
  for (std::size_t d = 3; d-- > 0; tap /= windows[d].kernel) in[d + 1] += tap % windows[d].kernel * windows[d].dilation;
  return in;
}

/// Finds the output that reads an input with a tap of the windows. Returns false if `outputs` has none.
PARTITA_HOST_DEVICE inline bool find_output(const std::array<Window, 3>& windows, const Lattice& outputs,
                                            const Position& in, Index tap, Position& out) {
  out = in;
  bool found = outputs.holds(0, in[0]);
  for (std::size_t d = 3; d-- > 0; tap /= windows[d].kernel) {
    const Window& window = windows[d];
    const Index first = in[d + 1] + window.pad_lo - tap % window.kernel * window.dilation;
    out[d + 1] = first / window.stride;
    found = found && first >= 0 && first % window.stride == 0 && outputs.holds(d + 1, out[d + 1]);
  }
  return found;
}

}  // namespace partita
