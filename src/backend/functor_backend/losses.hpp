#pragma once

#include "partita/base/dispatch.hpp"
#include "src/backend/alike.hpp"
#include "src/backend/functor_backend/functor_backend.hpp"
#include "src/backend/functors/losses.hpp"

namespace partita {

/// Three numbers for each row, one after the other.
inline SoftmaxRows softmax_rows_in(const Tensor& numbers) {
  auto* first = device_data<double>(numbers);
  const Index rows = numbers.volume() / 3;
  return {first, first + rows, first + 2 * rows};
}

/// Returns the numbers of SoftmaxRows, as a kernel's own memory.
template <class Launcher>
Tensor FunctorBackend<Launcher>::softmax_rows(const Tensor& x, const Tensor& labels, Stream stream) {
  const Index channels = x.extent('C'), rows = labels.volume();
  require(labels.dtype() == DType::i32 && rows * channels == x.volume(), "there must be one label per row of channels");
  const Tensor numbers = x.beside(DType::f64, "F", Box(Shape{{'F', 3 * rows}}), MemoryClass::workspace);
  const SoftmaxRows of = softmax_rows_in(numbers);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.largest(rows, channels, RowEntry<T>{device_data<T>(x), channels}, KeepLargest{of}, stream);
    launch_.template reduce<double, 2>(
        rows, channels, RowExponential<T>{device_data<T>(x), device_data<std::int32_t>(labels), of, channels},
        KeepLogSum{of}, stream);
  });
  return numbers;
}

template <class Launcher>
void FunctorBackend<Launcher>::cross_entropy_forward(const Tensor& x, const Tensor& labels, double count,
                                                     const Tensor& result, Stream stream) {
  const Tensor numbers = softmax_rows(x, labels, stream);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.template reduce<double, 2>(
        1, labels.volume(),
        RowLoss<T>{device_data<T>(x), device_data<std::int32_t>(labels), softmax_rows_in(numbers), x.extent('C')},
        AddResult{device_data<double>(result), count}, stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::cross_entropy_backward(const Tensor& x, const Tensor& labels, double scale,
                                                      const Tensor& dx, Stream stream) {
  check_alike(x, dx);
  const Tensor numbers = softmax_rows(x, labels, stream);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_each(labels.volume(), x.extent('C'),
                     CrossEntropyGradient<T>{device_data<T>(x), device_data<std::int32_t>(labels),
                                             softmax_rows_in(numbers), scale, device_data<T>(dx), x.extent('C')},
                     stream);
  });
}

/// Returns the number of rows of channels in one sample.
inline Index rows_of_sample(const Tensor& x) {
  const Index vectors = x.extent('N') * x.extent('C');
  return vectors == 0 ? 0 : x.volume() / vectors;
}

template <class Launcher>
void FunctorBackend<Launcher>::overlap_forward(const Tensor& x, const Tensor& labels, const Tensor& sums,
                                               const Tensor& result, Stream stream) {
  const Index samples = x.extent('N'), channels = x.extent('C'), rows = rows_of_sample(x);
  require(sums.dtype() == DType::f64 && sums.volume() == 2 * samples * channels,
          "there must be two sums per sample and channel");
  const Tensor numbers = softmax_rows(x, labels, stream);
  const SoftmaxRows of = softmax_rows_in(numbers);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.template reduce_columns<double, 2>(
        samples, rows, channels, Overlap<T>{device_data<T>(x), device_data<std::int32_t>(labels), of, rows, channels},
        KeepOverlap{device_data<double>(sums), samples, channels}, stream);
  });
  launch_.template reduce<double, 2>(1, labels.volume(), RowHit{of}, AddResult{device_data<double>(result), 1}, stream);
}

template <class Launcher>
void FunctorBackend<Launcher>::overlap_loss(const Tensor& sums, double count, double scale, const Tensor& result,
                                            Stream stream) {
  auto* common = device_data<double>(sums);
  const Index number = sums.volume() / 2;
  launch_.template reduce<double, 2>(1, number, DiceLoss{common, common + number, count, scale},
                                     AddLoss{result ? device_data<double>(result) : nullptr}, stream);
}

template <class Launcher>
void FunctorBackend<Launcher>::overlap_backward(const Tensor& x, const Tensor& labels, const Tensor& derivatives,
                                                const Tensor& dx, Stream stream) {
  check_alike(x, dx);
  const Tensor numbers = softmax_rows(x, labels, stream);
  const auto* common = device_data<double>(derivatives);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_each(
        1, labels.volume(),
        OverlapGradient<T>{device_data<T>(x), device_data<std::int32_t>(labels), softmax_rows_in(numbers), common,
                           common + derivatives.volume() / 2, device_data<T>(dx), rows_of_sample(x), x.extent('C')},
        stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::difference_forward(bool absolute, const Tensor& x, const Tensor& target, double count,
                                                  const Tensor& result, Stream stream) {
  check_alike(x, target);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.template reduce<double, 2>(1, x.volume(),
                                       Difference<T>{device_data<T>(x), device_data<T>(target), absolute},
                                       AddResult{device_data<double>(result), count}, stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::difference_backward(bool absolute, const Tensor& x, const Tensor& target, double scale,
                                                   const Tensor& dx, Stream stream) {
  check_alike(x, target);
  check_alike(x, dx);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_each(
        1, x.volume(),
        DifferenceGradient<T>{device_data<T>(x), device_data<T>(target), absolute, scale, device_data<T>(dx)}, stream);
  });
}

}  // namespace partita
