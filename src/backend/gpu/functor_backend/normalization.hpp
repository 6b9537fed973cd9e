#pragma once

#include "partita/base/dispatch.hpp"
#include "src/backend/common/alike.hpp"
#include "src/backend/common/norm_checks.hpp"
#include "src/backend/gpu/functor_backend/functor_backend.hpp"
#include "src/backend/gpu/functors/normalization.hpp"

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

template <class T>
Centers<T> centers_of(const Tensor& x, const NormParts& parts) {
  return {device_data<T>(x), stack_of(parts), parts.a_group};
}

inline KeepStatistics keep_statistics(const NormNumbers& to, Index count, double epsilon,
                                      const RunningStatistics& running) {
  const DType dtype = running.mean ? running.mean.dtype() : DType::f64;
  if (running.mean) {
    check_one_part(to);
    check_channels(running.mean, to.channels);
    check_alike(running.mean, running.variance);
    require(dtype == DType::f64 || dtype == DType::f32, "running statistics must be f64 or f32");
  }
  const auto data = [](const Tensor& t) { return t ? static_cast<void*>(t.data()) : nullptr; };
  return {
      to,
      static_cast<double>(count),
      epsilon,
      {data(running.mean), data(running.variance), dtype == DType::f64, running.keep, running.add, unbiased(count)}};
}

template <class Launcher>
void FunctorBackend<Launcher>::channel_sums(const Tensor& x, Index groups, const Tensor& sums, Stream stream) {
  const NormNumbers to = numbers_in(sums, 2);
  const NormParts parts = norm_parts(x, {to.parts, groups});
  check_sums(to, parts);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.template reduce_columns<double, 2>(
        stack_of(parts), ChannelMoments<T>{{device_data<T>(x)}, centers_of<T>(x, parts)}, KeepNumbers{to}, stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::channel_statistics(const Tensor& x, double epsilon, const RunningStatistics& running,
                                                  const Tensor& statistics, Stream stream) {
  const NormNumbers to = numbers_in(statistics, 3);
  const NormParts parts = norm_parts(x, to);
  check_sums(to, parts);
  const KeepStatistics keep = keep_statistics(to, parts.rows, epsilon, running);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const auto centers = centers_of<T>(x, parts);
    launch_.template reduce_columns<double, 2>(stack_of(parts), ChannelMoments<T>{{device_data<T>(x)}, centers},
                                               KeepStatisticsOfSums<T>{centers, keep}, stream);
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

template <class T>
WriteWeightGradients<T> weight_gradients(const NormWeightGradients& to) {
  if (!to.sums) return {};
  const NormNumbers from = numbers_in(to.sums, 2);
  check_channels(to.dscale, from.channels);
  check_alike(to.dscale, to.dshift);
  return {from, device_data<T>(to.dshift), device_data<T>(to.dscale), to.write == Write::add};
}

template <class Launcher>
void FunctorBackend<Launcher>::norm_weight_gradients(const NormWeightGradients& to, Stream stream) {
  dispatch_float(to.dscale.dtype(), [&](auto t) {
    const auto write = weight_gradients<decltype(t)>(to);
    launch_.for_each(2, write.from.channels, write, stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::norm_moments(const Tensor& x, const Tensor& sums, Index own, Index count,
                                            const Tensor& moments, Stream stream) {
  const NormNumbers from = numbers_in(sums, 2), to = numbers_in(moments, 4);
  check_same(from, to);
  const NormParts parts = norm_parts(x, to);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_each(
        to.parts, to.channels,
        NormMoments<T>{from, to, centers_of<T>(x, parts), static_cast<double>(own), static_cast<double>(count)},
        stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::norm_statistics(const Tensor& moments, Index count, double epsilon,
                                               const RunningStatistics& running, const Tensor& statistics,
                                               Stream stream) {
  const NormNumbers from = numbers_in(moments, 4), to = numbers_in(statistics, 3);
  check_same(from, to);
  launch_.for_each(to.parts, to.channels, NormStatistics{from, keep_statistics(to, count, epsilon, running)}, stream);
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
                                             const Tensor& dx, const NormWeightGradients& weights, Stream stream) {
  const NormNumbers of = numbers_in(statistics, 3), totals = numbers_in(sums, 2);
  const NormParts parts = norm_parts(x, of);
  check_masked(x, dy);
  check_alike(x, dx);
  check_channels(scale, parts.channels);
  require(scale.dtype() == x.dtype(), "scale must have x's dtype");
  check_same(totals, of);
  // One thread adds up the parts of a channel while others wait, so there must be one part only.
  const bool at_once = weights.sums && parts.rows > 0 && parts.parts == 1 && weights.dscale.dtype() == x.dtype();
  if (weights.sums && !at_once) FunctorBackend::norm_weight_gradients(weights, stream);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const auto write = weight_gradients<T>(at_once ? weights : NormWeightGradients());
    const double elements = count > 0 ? static_cast<double>(count) : 1.0;
    const auto run = [&]<bool masks>(const MaskedInputs<T, masks>& in, std::bool_constant<masks>) {
      launch_.for_elements(stack_of(parts),
                           NormBackward<T, masks>{in, device_data<T>(dx), of, totals, parts.a_group, scaled,
                                                  device_data<T>(scale), elements, write},
                           stream);
    };
    if (dy.y)
      run(masked_inputs<T>(x, dy), std::true_type{});
    else
      run({device_data<T>(x), device_data<T>(dy.dy)}, std::false_type{});
  });
}

}  // namespace partita
