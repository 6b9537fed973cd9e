#pragma once

#include "partita/base/accumulator.hpp"
#include "partita/base/device.hpp"
#include "src/backend/functors/launcher.hpp"

namespace partita {

/// As many moves of boxes as fit into a kernel's arguments. All have the same types and combine in the same way.
struct MoveBatch {
  Lengths lengths{};
  std::array<BoxMove, Lengths::most> of{};
};

/// The offsets of element i of a move.
struct MoveOffsets {
  Index from = 0, to = 0;
  PARTITA_HOST_DEVICE MoveOffsets(const BoxMove& move, Index i) {
    for (auto d = static_cast<std::size_t>(move.dims); d-- > 0; i /= move.extent[d]) {
      const Index at = i % move.extent[d];
      from += at * move.from_stride[d];
      to += at * move.to_stride[d];
    }
  }
};

/// Copies an element of type T, which stands for all types of its size.
template <class T>
struct CopyElement {
  MoveBatch moves;
  PARTITA_HOST_DEVICE void operator()(Index group, Index i) const {
    const BoxMove& move = moves.of[static_cast<std::size_t>(group)];
    const MoveOffsets at(move, i);
    static_cast<T*>(move.to)[at.to] = static_cast<const T*>(move.from)[at.from];
  }
};

/// Adds an element, or keeps the larger one; NaN is the largest.
template <class T, Combine combine>
struct CombineElement {
  MoveBatch moves;
  PARTITA_HOST_DEVICE void operator()(Index group, Index i) const {
    using A = std::conditional_t<std::is_integral_v<T>, T, Accumulator<T>>;
    const BoxMove& move = moves.of[static_cast<std::size_t>(group)];
    const MoveOffsets at(move, i);
    const T from = static_cast<const T*>(move.from)[at.from];
    T& to = static_cast<T*>(move.to)[at.to];
    if constexpr (combine == Combine::add)
      to = static_cast<T>(static_cast<A>(to) + static_cast<A>(from));
    else
      to = from > to || from != from ? from : to;
  }
};

template <class S, class T>
struct ConvertElement {
  MoveBatch moves;
  PARTITA_HOST_DEVICE void operator()(Index group, Index i) const {
    const BoxMove& move = moves.of[static_cast<std::size_t>(group)];
    const MoveOffsets at(move, i);
    static_cast<T*>(move.to)[at.to] = static_cast<T>(static_cast<double>(static_cast<const S*>(move.from)[at.from]));
  }
};

}  // namespace partita
