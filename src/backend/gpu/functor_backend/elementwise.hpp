#pragma once

#include "partita/base/dispatch.hpp"
#include "src/backend/common/alike.hpp"
#include "src/backend/common/dispatch_activation.hpp"
#include "src/backend/gpu/functor_backend/functor_backend.hpp"
#include "src/backend/gpu/functors/elementwise.hpp"

namespace partita {

/// A tensor as rows of channels, which are the innermost dimension.
inline Stack rows_of_channels(const Tensor& x) {
  const Index channels = x.extent('C');
  return {1, x.volume() == 0 ? 0 : x.volume() / channels, channels};
}

/// A tensor as one row of elements.
inline Stack one_row(const Tensor& x) { return {1, 1, x.volume()}; }

inline GlobalIndex global_index(const Tensor& tensor, const Shape& whole) {
  require(tensor.box().dims() == whole.dims(), "the tensor must have the dimensions of the shape");
  GlobalIndex index{.dims = whole.dims()};
  std::array<Index, max_dims> strides{};
  for (Index stride = 1, d = whole.dims(); d-- > 0; stride *= whole.extent(static_cast<int>(d))) strides[d] = stride;
  const auto order = tensor.order();
  for (std::size_t i = 0; i < static_cast<std::size_t>(whole.dims()); ++i) {
    const Interval side = tensor.box()[order[i]];
    index.extent[i] = side.extent();
    index.step[i] = strides[order[i]];
    index.first += side.lo * index.step[i];
  }
  return index;
}

template <class Launcher>
void FunctorBackend<Launcher>::bias_forward(const Tensor& bias, const Tensor& y, Stream stream) {
  require(bias.volume() == y.extent('C') && bias.dtype() == y.dtype(),
          "there must be one bias per channel, in y's dtype");
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    auto* data = device_data<T>(y);
    launch_.for_elements(rows_of_channels(y), AddBias<T>{{data}, data, device_data<T>(bias)}, stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::bias_backward(const Tensor& dy, const Tensor& db, Write write, Stream stream) {
  require(db.volume() == dy.extent('C') && db.dtype() == dy.dtype(),
          "there must be one bias per channel, in dy's dtype");
  dispatch_float(dy.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.template reduce_columns<double, 1>(rows_of_channels(dy), ElementOf<T>{{device_data<T>(dy)}},
                                               KeepBias<T>{device_data<T>(db), write == Write::add}, stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::sum(const Tensor& a, const Tensor& b, bool relu, const Tensor& y, Stream stream) {
  check_alike(a, b);
  check_alike(a, y);
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    const Inputs<T, T> in{device_data<T>(a), device_data<T>(b)};
    if (relu)
      launch_.for_elements(one_row(y), AddElements<T, true>{in, device_data<T>(y)}, stream);
    else
      launch_.for_elements(one_row(y), AddElements<T, false>{in, device_data<T>(y)}, stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::activation_forward(const Activation& f, const Tensor& x, const Tensor& y,
                                                  Stream stream) {
  check_alike(x, y);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    dispatch_activation(f.kind, [&](auto function) {
      launch_.for_elements(one_row(x),
                           Activate<T, decltype(function)>{
                               {device_data<T>(x)}, device_data<T>(y), static_cast<Accumulator<T>>(f.parameter)},
                           stream);
    });
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::activation_backward(const Activation& f, const Tensor& kept, const Tensor& dy,
                                                   const Tensor& dx, Stream stream) {
  check_alike(kept, dy);
  check_alike(kept, dx);
  dispatch_float(kept.dtype(), [&](auto t) {
    using T = decltype(t);
    dispatch_activation(f.kind, [&](auto function) {
      launch_.for_elements(
          one_row(kept),
          ActivateBackward<T, decltype(function)>{
              {device_data<T>(kept), device_data<T>(dy)}, device_data<T>(dx), static_cast<Accumulator<T>>(f.parameter)},
          stream);
    });
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::dropout(double rate, const Random& random, const Tensor& step, Index first,
                                       const Shape& whole, const Tensor& x, const Tensor& added, const Tensor& y,
                                       Stream stream) {
  check_alike(x, y);
  if (added) check_alike(added, y);
  if (y.volume() == 0) return;
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    const auto keep = static_cast<Accumulator<T>>(static_cast<T>(1 / (1 - rate)));
    const auto* from = device_data<T>(x);
    auto* to = device_data<T>(y);
    const auto* number = device_data<double>(step);
    const GlobalIndex index = global_index(y, whole);
    if (added)
      launch_.for_elements(
          one_row(y),
          DropElements<T, true>{{from, device_data<T>(added)}, to, rate, random, number, first, index, keep}, stream);
    else
      launch_.for_elements(one_row(y), DropElements<T, false>{{from}, to, rate, random, number, first, index, keep},
                           stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::axpby(double a, const Tensor& x, double b, const Tensor& y, Stream stream) {
  require(x.volume() == y.volume(), "both tensors must have as many elements");
  dispatch_float(x.dtype(), [&](auto s) {
    dispatch_float(y.dtype(), [&](auto t) {
      using S = decltype(s);
      using T = decltype(t);
      auto* to = device_data<T>(y);
      if (b == 0)
        launch_.for_elements(one_row(y), Axpby<S, T, false>{{device_data<S>(x)}, to, a, b}, stream);
      else
        launch_.for_elements(one_row(y), Axpby<S, T, true>{{device_data<S>(x), to}, to, a, b}, stream);
    });
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::write_numbers(std::span<const double> values, const Tensor& x, Stream stream) {
  require(x.dtype() == DType::f64 && x.volume() == std::ssize(values), "there is a place for each number");
  for (Index first = 0; first < std::ssize(values); first += Constants::most) {
    Constants some{device_data<double>(x) + first, {}};
    const Index count = std::min<Index>(Constants::most, std::ssize(values) - first);
    std::copy_n(values.data() + first, count, some.values.begin());
    launch_.for_each(1, count, some, stream);
  }
}

template <class Launcher>
void FunctorBackend<Launcher>::add_squares(const Tensor& x, const Tensor& sum, Stream stream) {
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.template reduce<double, 1>(1, x.volume(), SquareOf<T>{device_data<T>(x)}, AddTo{device_data<double>(sum)},
                                       stream);
  });
}

}  // namespace partita
