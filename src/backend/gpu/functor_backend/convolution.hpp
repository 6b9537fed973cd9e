#pragma once

#include "partita/base/dispatch.hpp"
#include "src/backend/common/geometry.hpp"
#include "src/backend/gpu/functor_backend/functor_backend.hpp"
#include "src/backend/gpu/functors/convolution.hpp"

namespace partita {

template <class T>
ConvArrays<T> conv_arrays(std::span<const Window> windows, const Tensor& x, const Tensor& w, const Tensor& y) {
  static_cast<void>(ConvGeometry(windows, x, w, y));  // checks them
  const Index channels = x.box().extent(1), filters = y.box().extent(1), a_group = w.box().extent(1);
  const Index groups = a_group == 0 || channels == 0 ? 1 : channels / a_group;
  return {three(windows),    lattice_of(x), lattice_of(y), device_data<T>(x), device_data<T>(w),
          device_data<T>(y), channels,      filters,       a_group,           filters / groups};
}

template <class Launcher>
void FunctorBackend<Launcher>::conv_forward(std::span<const Window> windows, const Tensor& x, const Tensor& w,
                                            const Tensor& bias, const Tensor& y, Stream stream) {
  const Positions outputs(y.box());
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    const ConvArrays<T> conv = conv_arrays<T>(windows, x, w, y);
    launch_.for_each(outputs.count(), conv.filters, Convolve<T>{conv, outputs, bias ? device_data<T>(bias) : nullptr},
                     stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::conv_backward_data(std::span<const Window> windows, const Tensor& dy, const Tensor& w,
                                                  const Tensor& dx, Stream stream) {
  const Positions inputs(dx.box());
  dispatch_float(dx.dtype(), [&](auto t) {
    using T = decltype(t);
    const ConvArrays<T> conv = conv_arrays<T>(windows, dx, w, dy);
    launch_.for_each(inputs.count(), conv.channels, ConvolveBack<T>{conv, inputs}, stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::conv_backward_filter(std::span<const Window> windows, const Tensor& x, const Tensor& dy,
                                                    const Tensor& dw, Write write, Stream stream) {
  const Positions outputs(dy.box());
  dispatch_float(dw.dtype(), [&](auto t) {
    using T = decltype(t);
    const ConvArrays<T> conv = conv_arrays<T>(windows, x, dw, dy);
    launch_.template reduce<Accumulator<T>, 1>(dw.volume(), outputs.count(), FilterTerm<T>{conv, outputs},
                                               KeepWeight<T>{device_data<T>(dw), write == Write::add}, stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::gemm(DType dtype, bool transpose_a, bool transpose_b, Index m, Index n, Index k,
                                    double alpha, const void* a, Index lda, const void* b, Index ldb, double beta,
                                    void* c, Index ldc, Stream stream) {
  dispatch_float(dtype, [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    launch_.for_each(m, n,
                     Multiply<T>{static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(c), transpose_a,
                                 transpose_b, k, lda, ldb, ldc, static_cast<A>(alpha), static_cast<A>(beta)},
                     stream);
  });
}

}  // namespace partita
