#pragma once

#include "partita/base/dispatch.hpp"
#include "src/backend/functor_backend/functor_backend.hpp"
#include "src/backend/functors/pooling.hpp"
#include "src/backend/geometry.hpp"

namespace partita {

inline PoolWindows windows_over(const Pooling& pooling, const Tensor& x) {
  return {three(pooling.windows), lattice_of(x), pooling.count_padding};
}

template <class Launcher>
void FunctorBackend<Launcher>::pool_forward(const Pooling& pooling, const Tensor& x, const Tensor& y,
                                            const Tensor& picked, Stream stream) {
  if (y.volume() == 0) return;
  const Index channels = y.box().extent(1);
  const PoolWindows windows = windows_over(pooling, x);
  const Positions outputs(y.box());
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    if (pooling.kind == PoolKind::max)
      launch_.for_each(outputs.count(), channels,
                       PoolMaximum<T>{windows, outputs, device_data<T>(x), device_data<T>(y),
                                      device_data<std::int32_t>(picked), channels},
                       stream);
    else
      launch_.for_each(outputs.count(), channels,
                       PoolAverage<T>{windows, outputs, device_data<T>(x), device_data<T>(y), channels}, stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::pool_backward(const Pooling& pooling, const Tensor& dy, const Tensor& picked,
                                             const Tensor& dx, Stream stream) {
  if (dy.volume() == 0 || dx.volume() == 0) return;
  const Index channels = dy.box().extent(1);
  const Positions inputs(dx.box());
  dispatch_float(dx.dtype(), [&](auto t) {
    using T = decltype(t);
    const auto* positions = pooling.kind == PoolKind::max ? device_data<std::int32_t>(picked) : nullptr;
    launch_.for_each(inputs.count(), channels,
                     PoolBackward<T>{windows_over(pooling, dx), inputs, lattice_of(dy), device_data<T>(dy), positions,
                                     device_data<T>(dx), channels},
                     stream);
  });
}

}  // namespace partita
