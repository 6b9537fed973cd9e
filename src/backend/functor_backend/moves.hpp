#pragma once

#include "partita/base/dispatch.hpp"
#include "src/backend/functors/moves.hpp"

#include <algorithm>

namespace partita {

/// @pre There are at most Lengths::most moves.
inline MoveBatch batch_of(std::span<const BoxMove> moves) {
  MoveBatch batch;
  for (const BoxMove& move : moves) {
    const auto at = static_cast<std::size_t>(batch.lengths.groups++);
    batch.lengths.length[at] = 1;
    for (int d = 0; d < move.dims; ++d) batch.lengths.length[at] *= move.extent[static_cast<std::size_t>(d)];
    batch.of[at] = move;
  }
  return batch;
}

/// Runs moves that have the same types.
template <class Launcher>
void run_batch(const Launcher& launch, std::span<const BoxMove> moves, Stream stream) {
  const MoveBatch batch = batch_of(moves);
  const BoxMove& first = moves.front();
  if (first.combine != Combine::replace) {
    require(first.from_type == first.to_type, "a sum must keep the dtype");
    return dispatch(first.to_type, [&](auto t) {
      if (first.combine == Combine::add)
        launch.for_ragged(batch.lengths, CombineElement<decltype(t), Combine::add>{batch}, stream);
      else
        launch.for_ragged(batch.lengths, CombineElement<decltype(t), Combine::largest>{batch}, stream);
    });
  }
  if (first.from_type != first.to_type)
    return dispatch(first.from_type, [&](auto s) {
      dispatch(first.to_type, [&](auto t) {
        launch.for_ragged(batch.lengths, ConvertElement<decltype(s), decltype(t)>{batch}, stream);
      });
    });
  switch (size_of(first.to_type)) {
    case 2: return launch.for_ragged(batch.lengths, CopyElement<std::uint16_t>{batch}, stream);
    case 4: return launch.for_ragged(batch.lengths, CopyElement<std::uint32_t>{batch}, stream);
    default: return launch.for_ragged(batch.lengths, CopyElement<std::uint64_t>{batch}, stream);
  }
}

/// Device::move by functors: one launch for neighbors in the list that have the same types.
template <class Launcher>
void run_moves(const Launcher& launch, std::span<const BoxMove> moves, Stream stream) {
  while (!moves.empty()) {
    const auto same = [first = moves.front()](const BoxMove& move) {
      return move.from_type == first.from_type && move.to_type == first.to_type && move.combine == first.combine;
    };
    const auto end = std::find_if_not(moves.begin(), moves.end(), same);
    const auto count = std::min(static_cast<std::size_t>(end - moves.begin()), static_cast<std::size_t>(Lengths::most));
    run_batch(launch, moves.first(count), stream);
    moves = moves.subspan(count);
  }
}

}  // namespace partita
