#pragma once

#include "partita/base/dispatch.hpp"
#include "src/backend/common/geometry.hpp"
#include "src/backend/gpu/functor_backend/functor_backend.hpp"
#include "src/backend/gpu/functors/pooling.hpp"

namespace partita {

inline PoolWindows windows_over(const Pooling& pooling, const Tensor& x) {
  return {three(pooling.windows), lattice_of(x), pooling.count_padding};
}

template <class Launcher>
void FunctorBackend<Launcher>::pool_forward(const Pooling& pooling, const Tensor& x, const Tensor& y,
                                            const Tensor& picked, const Box& part, Stream stream) {
  if (part.empty()) return;
  const Index channels = y.box().extent(1);
  const PoolWindows windows = windows_over(pooling, x);
  const Positions outputs(part);
  const Lattice to = lattice_of(y);
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    if (pooling.kind == PoolKind::max)
      launch_.for_each(
          outputs.count(), channels,
          PoolMaximum<T>{windows, outputs, to, device_data<T>(x), device_data<T>(y), device_data<std::int32_t>(picked)},
          stream);
    else
      launch_.for_each(outputs.count(), channels,
                       PoolAverage<T>{windows, outputs, to, device_data<T>(x), device_data<T>(y)}, stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::pool_backward(const Pooling& pooling, const Tensor& dy, const Tensor& picked,
                                             const Tensor& dx, const Box& part, Stream stream) {
  if (part.empty() || dx.volume() == 0) return;
  const Index channels = dy.box().extent(1);
  const Positions inputs(dx.box());
  const auto [outputs, first] = lattice_of(dy, part);
  dispatch_float(dx.dtype(), [&, &outputs = outputs, first = first](auto t) {
    using T = decltype(t);
    const auto* positions = pooling.kind == PoolKind::max ? device_data<std::int32_t>(picked) + first : nullptr;
    launch_.for_each(inputs.count(), channels,
                     PoolBackward<T>{windows_over(pooling, dx), inputs, outputs, device_data<T>(dy) + first, positions,
                                     device_data<T>(dx), channels},
                     stream);
  });
}

}  // namespace partita
