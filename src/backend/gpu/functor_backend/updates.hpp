#pragma once

#include "src/backend/common/dispatch_method.hpp"
#include "src/backend/gpu/functor_backend/functor_backend.hpp"
#include "src/backend/gpu/functors/updates.hpp"

#include <algorithm>

namespace partita {

/// @pre There are at most Lengths::most pieces.
template <class T>
UpdateBatch<T> batch_of(const UpdateRule<T>& rule, std::span<const WeightPiece> pieces, double* squares) {
  UpdateBatch<T> batch{.rule = rule, .sums = squares};
  for (const WeightPiece& piece : pieces) {
    const auto at = static_cast<std::size_t>(batch.lengths.groups++);
    batch.lengths.length[at] = piece.count;
    batch.arrays[at] = arrays_of(piece, rule);
    batch.scaled[at] = piece.decays;
  }
  return batch;
}

/// Calls f(batch of pieces, method) for as many pieces at a time as a kernel's arguments hold.
/// @pre All pieces have one dtype.
template <class F>
void for_batches(const Optimizer& optimizer, StepRate at, std::span<const WeightPiece> pieces, const Tensor& squares,
                 F&& f) {
  const auto run = [&](auto t) {
    using T = decltype(t);
    const UpdateRule<T> rule(optimizer, at);
    for (std::size_t first = 0; first < pieces.size(); first += Lengths::most) {
      const auto some = pieces.subspan(first, std::min<std::size_t>(Lengths::most, pieces.size() - first));
      const UpdateBatch<T> batch = batch_of(rule, some, squares ? device_data<double>(squares) + 2 * first : nullptr);
      dispatch_method(optimizer.method, [&](auto method) { f(batch, method); });
    }
  };
  if (pieces.empty()) return;
  pieces.front().dtype == DType::f64 ? run(double{}) : run(float{});
}

/// The type of a batch's weights, for decltype.
template <class T>
T type_of(const UpdateBatch<T>&);

template <class Launcher>
void FunctorBackend<Launcher>::update_norms(const Optimizer& optimizer, StepRate at,
                                            std::span<const WeightPiece> pieces, const Tensor& squares, Stream stream) {
  for_batches(optimizer, at, pieces, squares, [&](const auto& batch, auto method) {
    using T = decltype(type_of(batch));
    launch_.template reduce_ragged<double, 2>(batch.lengths, UpdateNorms<T, method()>{batch}, KeepSquares{batch.sums},
                                              stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::update(const Optimizer& optimizer, StepRate at, std::span<const WeightPiece> pieces,
                                      const Tensor& squares, Stream stream) {
  for_batches(optimizer, at, pieces, squares, [&](const auto& batch, auto method) {
    using T = decltype(type_of(batch));
    launch_.for_ragged(batch.lengths, ApplyUpdate<T, method()>{batch, optimizer}, stream);
  });
}

}  // namespace partita
