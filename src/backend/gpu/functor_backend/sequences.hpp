#pragma once

#include "partita/base/dispatch.hpp"
#include "src/backend/common/attention_checks.hpp"
#include "src/backend/common/dispatch_gate.hpp"
#include "src/backend/common/sequence_checks.hpp"
#include "src/backend/gpu/functor_backend/elementwise.hpp"
#include "src/backend/gpu/functors/sequences.hpp"

#include <algorithm>

namespace partita {

/// Calls visit(number of the first element, rows and channels, numbers) for chunks of the rows of x, in order, and also
/// if there are no rows. The statistics of a chunk have been computed. They lie in the launcher's scratch memory, which
/// decides how many rows a chunk has.
template <class Launcher>
template <class Visit>
void FunctorBackend<Launcher>::each_row_chunk(const RowNorm& norm, const Tensor& x, Stream stream,
                                              Visit&& visit) const {
  const Stack size = rows_of_channels(x);
  const auto scratch = launch_.scratch();
  const Index fit = rows_in(scratch, RowMoments::bytes, "normalizations of rows");
  for (Index row = 0; row == 0 || row < size.rows; row += fit) {
    const Stack chunk{1, std::min(fit, size.rows - row), size.columns};
    const Index first = row * size.columns;
    const RowMoments moments = row_moments_in(scratch, chunk.rows);
    dispatch_float(x.dtype(), [&](auto t) {
      using T = decltype(t);
      const RowDeviation<T> deviation{device_data<T>(x) + first, chunk.columns, norm.centered};
      launch_.template reduce<double, 2>(chunk.rows, chunk.columns, deviation,
                                         KeepRowStatistics<T>{moments, deviation, norm.epsilon}, stream);
    });
    visit(first, chunk, moments);
  }
}

template <class Launcher>
void FunctorBackend<Launcher>::row_norm_forward(const RowNorm& norm, const Tensor& x, const Tensor& scale,
                                                const Tensor& shift, const Tensor& y, Stream stream) {
  check_alike(x, y);
  check_row_weight(scale, x);
  if (shift) check_row_weight(shift, x);
  each_row_chunk(norm, x, stream, [&](Index first, const Stack& chunk, const RowMoments& of) {
    dispatch_float(x.dtype(), [&](auto t) {
      using T = decltype(t);
      launch_.for_elements(chunk,
                           NormalizeRows<T>{{device_data<T>(x) + first},
                                            device_data<T>(y) + first,
                                            of,
                                            device_data<T>(scale),
                                            shift ? device_data<T>(shift) : nullptr},
                           stream);
    });
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::row_norm_backward(const RowNorm& norm, const Tensor& x, const Tensor& dy,
                                                 const Tensor& scale, const Tensor& added, const Tensor& dx,
                                                 const RowNormWeights& weights, Stream stream) {
  check_row_gradients(x, dy, scale, added, dx, weights);
  each_row_chunk(norm, x, stream, [&](Index first, const Stack& chunk, const RowMoments& of) {
    dispatch_float(x.dtype(), [&](auto t) {
      using T = decltype(t);
      const Inputs<T, T> in{device_data<T>(x) + first, device_data<T>(dy) + first};
      if (weights.dscale)
        launch_.template reduce_columns<double, 2>(
            chunk, RowWeightGradients<T>{in, of},
            KeepRowWeightGradients<T>{device_data<T>(weights.dscale),
                                      weights.dshift ? device_data<T>(weights.dshift) : nullptr,
                                      first > 0 || weights.write == Write::add},
            stream);
      if (!dx) return;
      launch_.template reduce<double, 2>(chunk.rows, chunk.columns,
                                         RowGradient<T>{in.a, in.b, device_data<T>(scale), of, chunk.columns},
                                         KeepRowGradient{of, chunk.columns, norm.centered}, stream);
      auto* to = device_data<T>(dx) + first;
      if (added)
        launch_.for_elements(
            chunk,
            NormalizeRowsBackward<T, true>{{in.a, in.b, device_data<T>(added) + first}, to, of, device_data<T>(scale)},
            stream);
      else
        launch_.for_elements(chunk, NormalizeRowsBackward<T, false>{in, to, of, device_data<T>(scale)}, stream);
    });
  });
}

template <class T>
HeldRows<T> held_rows(const Tensor& table) {
  return {device_data<T>(table), table.box()[0].lo, table.extent('V'), table.extent('C'), table.extent('L')};
}

template <class Launcher>
void FunctorBackend<Launcher>::embed_forward(const Tensor& tokens, Index vocabulary, const Tensor& table, double scale,
                                             const Tensor& y, Stream stream) {
  check_embedding(tokens, table, y);
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_elements(rows_of_channels(y),
                         Embed<T>{{},
                                  device_data<T>(y),
                                  device_data<std::int32_t>(tokens),
                                  held_rows<T>(table),
                                  vocabulary,
                                  bag_of(tokens, y),
                                  static_cast<Accumulator<T>>(scale)},
                         stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::embed_backward(const Tensor& tokens, const Tensor& dy, double scale,
                                              const Tensor& dtable, Write write, Stream stream) {
  check_embedding(tokens, dtable, dy);
  if (write == Write::over) dtable.zero(stream);
  const Index all = dy.volume() == 0 ? 0 : tokens.volume();
  constexpr Index most = 1 << 16;  // tokens at once: the work of finding neighbors grows with their square
  const auto scratch = launch_.scratch();
  const Index fit = std::min(rows_in(scratch, TokenLists::bytes, "embeddings"), most);
  dispatch_float(dy.dtype(), [&](auto t) {
    using T = decltype(t);
    const auto table = held_rows<T>(dtable);
    for (Index first = 0; first < all; first += fit) {
      const Index count = std::min(fit, all - first);
      const TokenPart part{device_data<std::int32_t>(tokens), first, count, bag_of(tokens, dy), table.tables};
      const TokenLists lists = token_lists_in(scratch, count);
      launch_.for_each(1, count, LinkTokens<T>{part, table, lists}, stream);
      launch_.for_each(count, table.channels,
                       AddTokenRows<T>{part, device_data<T>(dy), table, lists, static_cast<Accumulator<T>>(scale)},
                       stream);
    }
  });
}

template <class T>
InteractingVectors<T> interacting(const Tensor& vectors, const Tensor& dense) {
  return {device_data<T>(vectors), device_data<T>(dense), dense.extent('C'), vectors.extent('L')};
}

template <class Launcher>
void FunctorBackend<Launcher>::interact_forward(const Tensor& vectors, const Tensor& dense, const Tensor& y,
                                                Stream stream) {
  check_interaction(vectors, dense, y);
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_each(y.box().extent(0), y.extent('C'), Interact<T>{interacting<T>(vectors, dense), device_data<T>(y)},
                     stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::interact_backward(const Tensor& vectors, const Tensor& dense, const Tensor& dy,
                                                 const Tensor& dvectors, const Tensor& ddense, Stream stream) {
  check_interaction(vectors, dense, dy);
  check_alike(vectors, dvectors);
  check_alike(dense, ddense);
  dispatch_float(dy.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_each(
        dy.box().extent(0) * (vectors.extent('L') + 1), dense.extent('C'),
        InteractBackward<T>{interacting<T>(vectors, dense), interacting<T>(dvectors, ddense), device_data<T>(dy)},
        stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::softmax_heads(Index heads, bool causal, const Tensor& segments, const Tensor& x,
                                             Stream stream) {
  const ScoreSizes size(x, heads);
  const SegmentIds ids = segment_ids(segments, x.box(), x.box());
  const auto scratch = launch_.scratch();
  const Index fit = rows_in(scratch, RowTotals::bytes, "softmax");
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    for (Index row = 0; row < size.rows; row += fit) {
      const Index count = std::min(fit, size.rows - row);
      T* data = device_data<T>(x) + row * size.keys;
      const RowTotals totals = row_totals_in(scratch, count);
      const SeenScore<T> score{data, {heads, size.keys, x.extent('L'), row, causal, ids}};
      const SeenExponential<T> exponential{score, totals};
      launch_.largest(count, size.keys, score, KeepLargestScore{totals}, stream);
      launch_.template reduce<double, 1>(count, size.keys, exponential, KeepRowTotal{totals}, stream);
      launch_.for_each(count, size.keys, SoftmaxScores<T>{exponential, data}, stream);
    }
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::softmax_heads_backward(Index heads, double scale, const Tensor& y, const Tensor& dropped,
                                                      const Tensor& dx, Stream stream) {
  check_alike(y, dropped);
  check_alike(y, dx);
  const ScoreSizes size(y, heads);
  const auto scratch = launch_.scratch();
  const Index fit = rows_in(scratch, RowTotals::bytes, "the gradient of softmax");
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    for (Index row = 0; row < size.rows; row += fit) {
      const Index count = std::min(fit, size.rows - row);
      const T *of_y = device_data<T>(y) + row * size.keys, *of_dropped = device_data<T>(dropped) + row * size.keys;
      T* of_dx = device_data<T>(dx) + row * size.keys;
      const RowTotals totals = row_totals_in(scratch, count);
      launch_.template reduce<double, 1>(count, size.keys, WeightedSlope<T>{of_dropped, of_dx, size.keys},
                                         KeepRowTotal{totals}, stream);
      launch_.for_each(count, size.keys, SoftmaxScoresBackward<T>{of_y, of_dropped, of_dx, totals, size.keys, scale},
                       stream);
    }
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::gate_forward(const Activation& f, const Tensor& x, const Tensor& y, Stream stream) {
  check_gate(x, y);
  dispatch_gate(f, x.dtype(), [&]<class T, class F, class A>(T, const Gate<F, A>& gate) {
    launch_.for_elements(one_row(y), GateForward<T, F>{{device_data<GatedPair<T>>(x)}, device_data<T>(y), gate},
                         stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::gate_backward(const Activation& f, const Tensor& x, const Tensor& dy, const Tensor& dx,
                                             Stream stream) {
  check_gate(x, dy);
  check_alike(x, dx);
  dispatch_gate(f, x.dtype(), [&]<class T, class F, class A>(T, const Gate<F, A>& gate) {
    launch_.for_elements(
        one_row(dy),
        GateBackward<T, F>{{device_data<GatedPair<T>>(x), device_data<T>(dy)}, device_data<GatedPair<T>>(dx), gate},
        stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::rotate(const Rotation& rotation, const Tensor& x, const Tensor& y, Stream stream) {
  check_rotation(rotation, x, y);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_each(x.extent('L'), rotation.dim / 2,
                     Rotate<T>{device_data<T>(x),
                               device_data<T>(y),
                               {rotation.base, rotation.dim, rotation.back},
                               rotation.heads,
                               rotation.rotated,
                               x.extent('N'),
                               x.extent('L'),
                               x.extent('C'),
                               x.box()[2].lo},
                     stream);
  });
}

}  // namespace partita
