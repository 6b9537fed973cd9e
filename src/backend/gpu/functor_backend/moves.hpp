#pragma once

#include "partita/base/dispatch.hpp"
#include "src/backend/gpu/functors/moves.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

namespace partita {

/// @pre There are at most Lengths::most moves.
inline MoveBatch batch_of(std::span<const BoxMove> moves) {
  MoveBatch batch;
  for (const BoxMove& move : moves) {
    const auto at = static_cast<std::size_t>(batch.lengths.groups++);
    batch.lengths.length[at] = 1;
    for (int d = 0; d < move.dims; ++d) batch.lengths.length[at] *= move.extent[d];
    batch.of[at] = move;
  }
  return batch;
}

/// Joins `count` neighboring elements of a move to one. Returns false, and changes nothing, if the move's last
/// dimension or its strides do not allow this.
inline bool join_elements(BoxMove& move, Index count) {
  if (move.dims == 0) return false;
  const auto last = static_cast<std::size_t>(move.dims) - 1;
  if (move.from_stride[last] != 1 || move.to_stride[last] != 1 || move.extent[last] % count != 0) return false;
  for (std::size_t d = 0; d < last; ++d)
    if (move.from_stride[d] % count != 0 || move.to_stride[d] % count != 0) return false;
  move.extent[last] /= count;
  for (std::size_t d = 0; d < last; ++d) {
    move.from_stride[d] /= count;
    move.to_stride[d] /= count;
  }
  return true;
}

inline bool is_aligned(const void* at, std::size_t bytes) { return reinterpret_cast<std::uintptr_t>(at) % bytes == 0; }

/// Makes a move's elements the largest units that it can copy, and returns their bytes.
inline std::size_t widen(BoxMove& move) {
  const std::size_t element = size_of(move.to_type);
  for (std::size_t bytes = sizeof(Unit<16>); bytes > element; bytes /= 2)
    if (is_aligned(move.from, bytes) && is_aligned(move.to, bytes) &&
        join_elements(move, static_cast<Index>(bytes / element)))
      return bytes;
  return element;
}

inline CopyUnit copy_of(std::span<const BoxMove> moves) {
  std::array<BoxMove, Lengths::most> wide;
  CopyUnit copy{};
  for (std::size_t i = 0; i < moves.size(); ++i) {
    wide[i] = moves[i];
    copy.bytes[i] = static_cast<std::uint8_t>(widen(wide[i]));
  }
  copy.moves = batch_of(std::span(wide).first(moves.size()));
  return copy;
}

/// Whether a move copies bytes, whatever they mean.
inline bool copies(const BoxMove& move) { return move.combine == Combine::replace && move.from_type == move.to_type; }

/// Runs moves that all copy, or that have the same types and combine in the same way.
template <class Launcher>
void run_batch(const Launcher& launch, std::span<const BoxMove> moves, Stream stream) {
  const BoxMove& first = moves.front();
  if (copies(first)) {
    const CopyUnit copy = copy_of(moves);
    return launch.for_ragged(copy.moves.lengths, copy, stream);
  }
  const MoveBatch batch = batch_of(moves);
  if (first.combine == Combine::replace)
    return dispatch(first.from_type, [&](auto s) {
      dispatch(first.to_type, [&](auto t) {
        launch.for_ragged(batch.lengths, ConvertElement<decltype(s), decltype(t)>{batch}, stream);
      });
    });
  if (first.combine == Combine::add)
    return dispatch_sum(first.from_type, first.to_type, [&](auto s, auto t) {
      launch.for_ragged(batch.lengths, CombineElement<decltype(s), decltype(t), Combine::add>{batch}, stream);
    });
  require(first.from_type == first.to_type, "a comparison must keep the dtype");
  dispatch(first.to_type, [&](auto t) {
    launch.for_ragged(batch.lengths, CombineElement<decltype(t), decltype(t), Combine::largest>{batch}, stream);
  });
}

/// Device::move by functors: one launch for neighbors in the list that are of the same kind.
template <class Launcher>
void run_moves(const Launcher& launch, std::span<const BoxMove> moves, Stream stream) {
  while (!moves.empty()) {
    const auto same = [first = moves.front()](const BoxMove& move) {
      if (copies(first)) return copies(move);
      return move.from_type == first.from_type && move.to_type == first.to_type && move.combine == first.combine;
    };
    const auto end = std::find_if_not(moves.begin(), moves.end(), same);
    const auto count = std::min(static_cast<std::size_t>(end - moves.begin()), static_cast<std::size_t>(Lengths::most));
    run_batch(launch, moves.first(count), stream);
    moves = moves.subspan(count);
  }
}

}  // namespace partita
