#pragma once

#include "partita/base/accumulator.hpp"
#include "partita/device/device.hpp"
#include "src/backend/gpu/functors/launcher.hpp"
#include "src/backend/gpu/functors/to_element.hpp"
#include "src/base/rounded.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace partita {

/// As many moves of boxes as fit into a kernel's arguments. All combine in the same way, and those that do not just
/// copy have the same types.
struct MoveBatch {
  Lengths lengths{};
  std::array<BoxMove, Lengths::most> of{};
};

/// The offsets of element i of a move. I is wide enough for all elements: divisions of 32 bits are much faster.
struct MoveOffsets {
  Index from = 0, to = 0;
  template <class I>
  PARTITA_HOST_DEVICE MoveOffsets(const BoxMove& move, I i) {
    for (auto d = static_cast<std::size_t>(move.dims); d-- > 1;) {
      const auto extent = static_cast<I>(move.extent[d]), at = static_cast<I>(i % extent);
      i = static_cast<I>(i / extent);
      add(move, d, static_cast<Index>(at));
    }
    if (move.dims > 0) add(move, 0, static_cast<Index>(i));
  }

 private:
  PARTITA_HOST_DEVICE void add(const BoxMove& move, std::size_t d, Index at) {
    from += at * move.from_stride[d];
    to += at * move.to_stride[d];
  }
};

/// Memory that is copied at once: 2, 4, 8 or 16 bytes.
template <std::size_t bytes>
struct alignas(bytes) Unit {
  std::array<std::uint16_t, bytes / 2> of;
};

/// Copies a unit. The offsets and strides of a move count in its units.
struct CopyUnit {
  MoveBatch moves;
  std::array<std::uint8_t, Lengths::most> bytes;  // of a unit of each move
  template <class I>
  PARTITA_HOST_DEVICE void operator()(Index group, I i) const {
    const BoxMove& move = moves.of[group];
    const MoveOffsets at(move, i);
    switch (bytes[group]) {
      case 2: return copy<Unit<2>>(move, at);
      case 4: return copy<Unit<4>>(move, at);
      case 8: return copy<Unit<8>>(move, at);
      default: return copy<Unit<16>>(move, at);
    }
  }

 private:
  template <class U>
  PARTITA_HOST_DEVICE static void copy(const BoxMove& move, const MoveOffsets& at) {
    static_cast<U*>(move.to)[at.to] = static_cast<const U*>(move.from)[at.from];
  }
};

/// Adds an element, or keeps the larger one; NaN is the largest.
template <class S, class T, Combine combine>
struct CombineElement {
  MoveBatch moves;
  template <class I>
  PARTITA_HOST_DEVICE void operator()(Index group, I i) const {
    using A = std::conditional_t<std::is_integral_v<T>, T, Accumulator<T>>;
    const BoxMove& move = moves.of[group];
    const MoveOffsets at(move, i);
    const S from = static_cast<const S*>(move.from)[at.from];
    T& to = static_cast<T*>(move.to)[at.to];
    if constexpr (combine == Combine::add)
      to = to_element<T>(static_cast<A>(to) + static_cast<A>(from));
    else
      to = from > to || from != from ? from : to;
  }
};

template <class S, class T>
struct ConvertElement {
  MoveBatch moves;
  template <class I>
  PARTITA_HOST_DEVICE void operator()(Index group, I i) const {
    const BoxMove& move = moves.of[group];
    const MoveOffsets at(move, i);
    const S from = static_cast<const S*>(move.from)[at.from];
    T& to = static_cast<T*>(move.to)[at.to];
    if constexpr (std::is_same_v<S, double> || std::is_integral_v<S> || std::is_integral_v<T>)
      to = rounded<T>(from);  // one rounding
    else
      to = to_element<T>(static_cast<float>(from));
  }
};

}  // namespace partita
