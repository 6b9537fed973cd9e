#pragma once

#include "partita/base/dispatch.hpp"
#include "src/backend/common/alike.hpp"
#include "src/backend/common/entropy_rows.hpp"
#include "src/backend/gpu/functor_backend/functor_backend.hpp"
#include "src/backend/gpu/functors/losses.hpp"

#include <algorithm>
#include <span>

namespace partita {

inline RowLabels row_labels(const Labels& labels) {
  return {device_data<std::int32_t>(labels.of), labels.weights ? device_data<double>(labels.weights) : nullptr,
          labels.classes, labels.ignored.value_or(0), labels.ignored.has_value()};
}
/// The numbers of a cross-entropy, as functors read and write them.
inline EntropyRows entropy_rows(const Labels& labels, const Tensor& numbers) {
  return entropy_rows(device_data<double>(numbers), labels.of.volume(), labels.smoothing > 0);
}
inline AddResult add_to(const Tensor& result, double count) {
  return {result ? device_data<double>(result) : nullptr, count, result ? result.volume() : 0};
}

/// Neighboring rows of the channels of x, all of one sample or of whole samples.
struct RowChunk {
  Index first_sample = 0, samples = 1;
  Index first = 0, rows = 0;  // the first row in memory, and the number of rows of each sample
  SoftmaxRows of{};
};

/// Calls visit(chunk) for chunks of `samples` samples of `rows` rows each, in order. The softmax of a chunk has been
/// prepared. It lies in the launcher's scratch memory, which decides how many rows a chunk has.
template <class Launcher>
template <class Visit>
void FunctorBackend<Launcher>::each_chunk(Index samples, Index rows, const Tensor& x, const Labels& labels,
                                          Stream stream, Visit&& visit) const {
  require(rows_of(x, labels) == samples * rows, "there must be one label per row of channels");
  const auto scratch = launch_.scratch();
  const Index fit = rows_in(scratch, SoftmaxRows::bytes, "the losses of labels");
  const Index samples_at_once = std::max<Index>(fit / std::max<Index>(rows, 1), 1), rows_at_once = std::min(fit, rows);
  for (Index sample = 0; sample < samples; sample += samples_at_once)
    for (Index row = 0; row < rows; row += rows_at_once) {
      RowChunk chunk{sample, std::min(samples_at_once, samples - sample), sample * rows + row,
                     std::min(rows_at_once, rows - row)};
      chunk.of = softmax_rows_in(scratch, chunk.samples * chunk.rows);
      prepare(chunk, x, labels, stream);
      visit(chunk);
    }
}

template <class Launcher>
void FunctorBackend<Launcher>::prepare(const RowChunk& chunk, const Tensor& x, const Labels& labels,
                                       Stream stream) const {
  const Index channels = x.extent('C'), rows = chunk.samples * chunk.rows;
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const auto* values = device_data<T>(x) + chunk.first * channels;
    launch_.largest(rows, channels, RowEntry<T>{values, channels}, KeepLargest{chunk.of.largest}, stream);
    launch_.template reduce<double, 2>(
        rows, channels, RowExponential<T>{values, row_labels(labels).from(chunk.first), chunk.of, channels},
        KeepLogSum{chunk.of}, stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::cross_entropy_maxima(const Tensor& x, const Labels& labels, const Tensor& numbers,
                                                    Stream stream) {
  const Index rows = entropy_rows_of(x, numbers, labels), channels = x.extent('C');
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.largest(rows, channels, RowEntry<T>{device_data<T>(x), channels}, KeepLargest{device_data<double>(numbers)},
                    stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::cross_entropy_sums(const Tensor& x, const Labels& labels, const Tensor& numbers,
                                                  Stream stream) {
  const Index rows = entropy_rows_of(x, numbers, labels), channels = x.extent('C');
  const EntropyRows of = entropy_rows(labels, numbers);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.template reduce<double, 4>(
        rows, channels, EntropySums<T>{device_data<T>(x), row_labels(labels), of, x.box()[1].lo, channels},
        KeepEntropySums{of}, stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::cross_entropy_loss(const Labels& labels, const Tensor& numbers, double count,
                                                  const Tensor& result, Stream stream) {
  launch_.template reduce<double, 4>(
      1, labels.of.volume(),
      RowEntropy{entropy_rows(labels, numbers), row_labels(labels), labels.smoothing,
                 labels.smoothing / static_cast<double>(labels.classes), labels.sum_of_weights},
      add_to(result, count), stream);
}

template <class Launcher>
void FunctorBackend<Launcher>::cross_entropy_backward(const Tensor& x, const Labels& labels, const Tensor& numbers,
                                                      double scale, const Tensor& dx, Stream stream) {
  check_alike(x, dx);
  const Index rows = entropy_rows_of(x, numbers, labels);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_elements({1, rows, x.extent('C')},
                         CrossEntropyGradient<T>{{device_data<T>(x)},
                                                 device_data<T>(dx),
                                                 row_labels(labels),
                                                 entropy_rows(labels, numbers),
                                                 x.box()[1].lo,
                                                 scale * (1 - labels.smoothing),
                                                 scale * labels.smoothing / static_cast<double>(labels.classes),
                                                 labels.sum_of_weights},
                         stream);
  });
}

/// Returns the number of rows of channels in one sample.
inline Index rows_of_sample(const Tensor& x) {
  const Index vectors = x.extent('N') * x.extent('C');
  return vectors == 0 ? 0 : x.volume() / vectors;
}

template <class Launcher>
void FunctorBackend<Launcher>::overlap_forward(const Tensor& x, const Labels& labels, const Tensor& sums,
                                               const Tensor& result, Stream stream) {
  const Index samples = x.extent('N'), channels = x.extent('C');
  require(sums.dtype() == DType::f64 && sums.volume() == 2 * samples * channels,
          "there must be two sums per sample and channel");
  sums.zero(stream);
  each_chunk(samples, rows_of_sample(x), x, labels, stream, [&](const RowChunk& chunk) {
    dispatch_float(x.dtype(), [&](auto t) {
      using T = decltype(t);
      launch_.template reduce_columns<double, 2>(
          {chunk.samples, chunk.rows, channels},
          Overlap<T>{{device_data<T>(x) + chunk.first * channels},
                     row_labels(labels).from(chunk.first),
                     chunk.of,
                     chunk.rows,
                     channels},
          AddOverlap{device_data<double>(sums) + chunk.first_sample * channels, samples, channels}, stream);
    });
    launch_.template reduce<double, 4>(1, chunk.samples * chunk.rows,
                                       RowHit{chunk.of, row_labels(labels).from(chunk.first)}, add_to(result, 1),
                                       stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::overlap_loss(const Tensor& sums, double count, double scale, const Tensor& result,
                                            Stream stream) {
  auto* common = device_data<double>(sums);
  const Index number = sums.volume() / 2;
  launch_.template reduce<double, 4>(1, number, DiceLoss{common, common + number, count, scale},
                                     AddLoss{add_to(result, 1)}, stream);
}

template <class Launcher>
void FunctorBackend<Launcher>::overlap_backward(const Tensor& x, const Labels& labels, const Tensor& derivatives,
                                                const Tensor& dx, Stream stream) {
  check_alike(x, dx);
  const Index channels = x.extent('C');
  each_chunk(x.extent('N'), rows_of_sample(x), x, labels, stream, [&](const RowChunk& chunk) {
    const auto* common = device_data<double>(derivatives) + chunk.first_sample * channels;
    dispatch_float(x.dtype(), [&](auto t) {
      using T = decltype(t);
      launch_.for_each(
          1, chunk.samples * chunk.rows,
          OverlapGradient<T>{device_data<T>(x) + chunk.first * channels, row_labels(labels).from(chunk.first), chunk.of,
                             common, common + derivatives.volume() / 2, device_data<T>(dx) + chunk.first * channels,
                             chunk.rows, channels},
          stream);
    });
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::difference_forward(bool absolute, const Tensor& x, const Tensor& target, double count,
                                                  const Tensor& result, Stream stream) {
  check_alike(x, target);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.template reduce<double, 4>(1, x.volume(),
                                       Difference<T>{device_data<T>(x), device_data<T>(target), absolute},
                                       add_to(result, count), stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::difference_backward(bool absolute, const Tensor& x, const Tensor& target, double scale,
                                                   const Tensor& dx, Stream stream) {
  check_alike(x, target);
  check_alike(x, dx);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_elements(
        {1, 1, x.volume()},
        DifferenceGradient<T>{{device_data<T>(x), device_data<T>(target)}, device_data<T>(dx), absolute, scale},
        stream);
  });
}

}  // namespace partita
