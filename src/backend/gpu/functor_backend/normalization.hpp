#pragma once

#include "partita/base/dispatch.hpp"
#include "src/backend/common/alike.hpp"
#include "src/backend/common/norm_checks.hpp"
#include "src/backend/gpu/functor_backend/functor_backend.hpp"
#include "src/backend/gpu/functors/normalization.hpp"

#include <algorithm>
#include <type_traits>

namespace partita {

inline NormNumbers numbers_in(const Tensor& tensor, Index count) {
  return {norm_extents(tensor, count), device_data<double>(tensor)};
}

inline void check_masked(const Tensor& x, const MaskedGradient& dy) {
  check_alike(x, dy.dy);
  if (dy.y) check_alike(x, dy.y);
}

template <class T>
Inputs<T, T, T> masked_inputs(const Tensor& x, const MaskedGradient& dy) {
  return {device_data<T>(x), device_data<T>(dy.dy), device_data<T>(dy.y)};
}

inline Stack stack_of(const NormParts& x) { return {x.parts, x.rows, x.channels}; }

template <class Launcher>
void FunctorBackend<Launcher>::channel_centers(const Tensor& x, const Tensor& centers, Stream stream) {
  const NormNumbers to = numbers_in(centers, 1);
  const NormParts parts = norm_parts(x, to);
  const Index elements = parts.rows * parts.a_group, samples = std::min(elements, center_samples);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_each(to.parts, to.channels,
                     ChannelCenters<T>{device_data<T>(x), stack_of(parts), to, parts.a_group, samples, elements},
                     stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::channel_sums(const Tensor& x, const Tensor& centers, const Tensor& sums, Stream stream) {
  const NormNumbers to = numbers_in(sums, 2), of = numbers_in(centers, 1);
  const NormParts parts = norm_parts(x, of);
  check_sums(to, parts);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.template reduce_columns<double, 2>(
        stack_of(parts), ChannelMoments<T>{{device_data<T>(x)}, of, parts.a_group}, KeepNumbers{to}, stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::channel_gradient_sums(const Tensor& x, const MaskedGradient& dy,
                                                     const Tensor& statistics, const Tensor& sums, Stream stream) {
  const NormNumbers to = numbers_in(sums, 2), of = numbers_in(statistics, 3);
  const NormParts parts = norm_parts(x, of);
  check_masked(x, dy);
  check_sums(to, parts);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    if (dy.y)
      launch_.template reduce_columns<double, 2>(stack_of(parts),
                                                 GradientMoments<T, true>{masked_inputs<T>(x, dy), of, parts.a_group},
                                                 KeepNumbers{to}, stream);
    else
      launch_.template reduce_columns<double, 2>(
          stack_of(parts), GradientMoments<T, false>{{device_data<T>(x), device_data<T>(dy.dy)}, of, parts.a_group},
          KeepNumbers{to}, stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::group_channels(const Tensor& sums, const Tensor& scale, const Tensor& grouped,
                                              Stream stream) {
  const NormNumbers from = numbers_in(sums, 2), to = numbers_in(grouped, 2);
  check_groups(from, to);
  if (scale) check_channels(scale, from.channels);
  dispatch_float(scale ? scale.dtype() : DType::f64, [&](auto t) {
    using T = decltype(t);
    const Index a_group = to.channels == 0 ? 1 : from.channels / to.channels;
    launch_.for_each(2 * to.parts, to.channels,
                     GroupChannels<T>{from, to, scale ? device_data<T>(scale) : nullptr, a_group}, stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::norm_weight_gradients(const Tensor& sums, const Tensor& dscale, const Tensor& dshift,
                                                     Write write, Stream stream) {
  const NormNumbers from = numbers_in(sums, 2);
  check_channels(dscale, from.channels);
  check_alike(dscale, dshift);
  dispatch_float(dscale.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_each(2, from.channels,
                     NormWeightGradients<T>{from, device_data<T>(dshift), device_data<T>(dscale), write == Write::add},
                     stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::norm_moments(const Tensor& sums, const Tensor& centers, Index own, Index count,
                                            const Tensor& moments, Stream stream) {
  const NormNumbers from = numbers_in(sums, 2), about = numbers_in(centers, 1), to = numbers_in(moments, 4);
  check_same(from, to);
  check_same(about, to);
  launch_.for_each(to.parts, to.channels,
                   NormMoments{from, about, to, static_cast<double>(own), static_cast<double>(count)}, stream);
}

template <class Launcher>
void FunctorBackend<Launcher>::norm_statistics(const Tensor& moments, Index count, double epsilon,
                                               const RunningStatistics& running, const Tensor& statistics,
                                               Stream stream) {
  const NormNumbers from = numbers_in(moments, 4), to = numbers_in(statistics, 3);
  check_same(from, to);
  if (running.mean) {
    check_one_part(to);
    check_channels(running.mean, to.channels);
    check_alike(running.mean, running.variance);
  }
  dispatch_float(running.mean ? running.mean.dtype() : DType::f64, [&](auto t) {
    using T = decltype(t);
    launch_.for_each(to.parts, to.channels,
                     NormStatistics<T>{from, to, static_cast<double>(count), epsilon, device_data<T>(running.mean),
                                       device_data<T>(running.variance), running.keep, running.add, unbiased(count)},
                     stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::given_statistics(const Tensor& mean, const Tensor& variance, double epsilon,
                                                const Tensor& statistics, Stream stream) {
  const NormNumbers to = numbers_in(statistics, 3);
  check_one_part(to);
  check_channels(mean, to.channels);
  check_channels(variance, to.channels);
  require(mean.dtype() == variance.dtype(), "mean and variance must have one dtype");
  dispatch_float(mean.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_each(1, to.channels, GivenStatistics<T>{device_data<T>(mean), device_data<T>(variance), to, epsilon},
                     stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::norm_forward(const Tensor& x, const Tensor& statistics, const Tensor& scale,
                                            const Tensor& shift, bool relu, const Tensor& y, Stream stream) {
  const NormNumbers of = numbers_in(statistics, 3);
  const NormParts parts = norm_parts(x, of);
  check_alike(x, y);
  for (const Tensor* vector : {&scale, &shift}) {
    check_channels(*vector, parts.channels);
    require(vector->dtype() == x.dtype(), "scale and shift must have x's dtype");
  }
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const auto run = [&]<bool then>(std::bool_constant<then>) {
      launch_.for_elements(
          stack_of(parts),
          NormForward<T, then>{
              {device_data<T>(x)}, device_data<T>(y), of, parts.a_group, device_data<T>(scale), device_data<T>(shift)},
          stream);
    };
    relu ? run(std::true_type{}) : run(std::false_type{});
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::norm_backward(const Tensor& x, const MaskedGradient& dy, const Tensor& statistics,
                                             const Tensor& sums, bool scaled, const Tensor& scale, Index count,
                                             const Tensor& dx, Stream stream) {
  const NormNumbers of = numbers_in(statistics, 3), totals = numbers_in(sums, 2);
  const NormParts parts = norm_parts(x, of);
  check_masked(x, dy);
  check_alike(x, dx);
  check_channels(scale, parts.channels);
  require(scale.dtype() == x.dtype(), "scale must have x's dtype");
  check_same(totals, of);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const double elements = count > 0 ? static_cast<double>(count) : 1.0;
    const auto run = [&]<bool masks>(const MaskedInputs<T, masks>& in, std::bool_constant<masks>) {
      launch_.for_elements(stack_of(parts),
                           NormBackward<T, masks>{in, device_data<T>(dx), of, totals, parts.a_group, scaled,
                                                  device_data<T>(scale), elements},
                           stream);
    };
    if (dy.y)
      run(masked_inputs<T>(x, dy), std::true_type{});
    else
      run({device_data<T>(x), device_data<T>(dy.dy)}, std::false_type{});
  });
}

}  // namespace partita
