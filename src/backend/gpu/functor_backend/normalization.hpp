#pragma once

#include "partita/base/dispatch.hpp"
#include "src/backend/common/alike.hpp"
#include "src/backend/gpu/functor_backend/functor_backend.hpp"
#include "src/backend/gpu/functors/normalization.hpp"

#include <algorithm>

namespace partita {

inline NormNumbers numbers_in(const Tensor& tensor, Index count) {
  require(tensor.dtype() == DType::f64 && tensor.names() == "SNC" && tensor.extent('S') == count,
          "numbers of a normalization must be an f64 tensor S N C");
  return {device_data<double>(tensor), tensor.extent('N'), tensor.extent('C')};
}

/// x as parts of consecutive rows of channels, which are the innermost dimension.
struct NormParts {
  Stack size;
  Index a_group;  // channels of a group
};

/// Returns x cut into the parts and groups that its numbers have.
inline NormParts parts_of(const Tensor& x, const NormNumbers& numbers) {
  const Index channels = x.extent('C'), count = numbers.parts, groups = numbers.channels;
  require(x.find('C') >= 0, "x must have channels");
  require(count == 1 || count == x.extent('N'), "a part must be all of x or one sample");
  require(groups == 0 ? channels == 0 : channels % groups == 0,
          "there must be one number for each channel or group of channels");
  return {{count, x.volume() > 0 ? x.volume() / channels / count : 0, channels}, groups == 0 ? 1 : channels / groups};
}

template <class Launcher>
void FunctorBackend<Launcher>::channel_centers(const Tensor& x, const Tensor& centers, Stream stream) {
  const NormNumbers to = numbers_in(centers, 1);
  const NormParts parts = parts_of(x, to);
  const Index elements = parts.size.rows * parts.a_group, samples = std::min(elements, center_samples);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_each(to.parts, to.channels,
                     ChannelCenters<T>{device_data<T>(x), parts.size, to, parts.a_group, samples, elements}, stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::channel_sums(const Tensor& x, const Tensor& centers, const Tensor& sums, Stream stream) {
  const NormNumbers to = numbers_in(sums, 2), of = numbers_in(centers, 1);
  const NormParts parts = parts_of(x, of);
  require(to.channels == parts.size.columns && to.parts == parts.size.parts,
          "there must be one sum per part and channel");
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.template reduce_columns<double, 2>(parts.size, ChannelMoments<T>{{device_data<T>(x)}, of, parts.a_group},
                                               KeepNumbers{to}, stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::channel_gradient_sums(const Tensor& x, const Tensor& dy, const Tensor& statistics,
                                                     const Tensor& sums, Stream stream) {
  const NormNumbers to = numbers_in(sums, 2), of = numbers_in(statistics, 3);
  const NormParts parts = parts_of(x, of);
  check_alike(x, dy);
  require(to.channels == parts.size.columns && to.parts == parts.size.parts,
          "there must be one sum per part and channel");
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.template reduce_columns<double, 2>(
        parts.size, GradientMoments<T>{{device_data<T>(x), device_data<T>(dy)}, of, parts.a_group}, KeepNumbers{to},
        stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::group_channels(const Tensor& sums, const Tensor& scale, const Tensor& grouped,
                                              Stream stream) {
  const NormNumbers from = numbers_in(sums, 2), to = numbers_in(grouped, 2);
  require(from.parts == to.parts, "a group must keep its part");
  require(to.channels == 0 ? from.channels == 0 : from.channels % to.channels == 0, "groups must divide the channels");
  require(!scale || scale.volume() == from.channels, "there must be one scale per channel");
  dispatch_float(scale ? scale.dtype() : DType::f64, [&](auto t) {
    using T = decltype(t);
    const Index a_group = to.channels == 0 ? 1 : from.channels / to.channels;
    launch_.for_each(2 * to.parts, to.channels,
                     GroupChannels<T>{from, to, scale ? device_data<T>(scale) : nullptr, a_group}, stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::add_parts(const Tensor& sums, Index s, const Tensor& total, Stream stream) {
  const NormNumbers from = numbers_in(sums, 2);
  require(total.volume() == from.channels, "there must be one entry per channel");
  dispatch_float(total.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_each(1, from.channels, AddParts<T>{from, s, device_data<T>(total)}, stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::norm_moments(const Tensor& sums, const Tensor& centers, Index own, Index count,
                                            const Tensor& moments, Stream stream) {
  const NormNumbers from = numbers_in(sums, 2), about = numbers_in(centers, 1), to = numbers_in(moments, 4);
  for (const NormNumbers& of : {from, about})
    require(of.parts == to.parts && of.channels == to.channels, "sums and moments must be of the same channels");
  launch_.for_each(to.parts, to.channels,
                   NormMoments{from, about, to, static_cast<double>(own), static_cast<double>(count)}, stream);
}

template <class Launcher>
void FunctorBackend<Launcher>::norm_statistics(const Tensor& moments, Index count, double epsilon,
                                               const Tensor& statistics, Stream stream) {
  const NormNumbers from = numbers_in(moments, 4), to = numbers_in(statistics, 3);
  require(from.parts == to.parts && from.channels == to.channels,
          "moments and statistics must be of the same channels");
  launch_.for_each(to.parts, to.channels, NormStatistics{from, to, static_cast<double>(count), epsilon}, stream);
}

template <class Launcher>
void FunctorBackend<Launcher>::given_statistics(const Tensor& mean, const Tensor& variance, double epsilon,
                                                const Tensor& statistics, Stream stream) {
  const NormNumbers to = numbers_in(statistics, 3);
  require(to.parts == 1, "given statistics are those of all of x");
  require(mean.volume() == to.channels && variance.volume() == to.channels && mean.dtype() == variance.dtype(),
          "there must be one mean and one variance per channel, in one dtype");
  dispatch_float(mean.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_each(1, to.channels, GivenStatistics<T>{device_data<T>(mean), device_data<T>(variance), to, epsilon},
                     stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::norm_forward(const Tensor& x, const Tensor& statistics, const Tensor& scale,
                                            const Tensor& shift, const Tensor& y, Stream stream) {
  const NormNumbers of = numbers_in(statistics, 3);
  const NormParts parts = parts_of(x, of);
  check_alike(x, y);
  for (const Tensor* vector : {&scale, &shift})
    require(vector->volume() == parts.size.columns && vector->dtype() == x.dtype(),
            "there must be one scale and one shift per channel, in x's dtype");
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_elements(
        parts.size,
        NormForward<T>{
            {device_data<T>(x)}, device_data<T>(y), of, parts.a_group, device_data<T>(scale), device_data<T>(shift)},
        stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::norm_backward(const Tensor& x, const Tensor& dy, const Tensor& statistics,
                                             const Tensor& sums, bool scaled, const Tensor& scale, Index count,
                                             const Tensor& dx, Stream stream) {
  const NormNumbers of = numbers_in(statistics, 3), totals = numbers_in(sums, 2);
  const NormParts parts = parts_of(x, of);
  check_alike(x, dy);
  check_alike(x, dx);
  require(scale.volume() == parts.size.columns && scale.dtype() == x.dtype(),
          "there must be one scale per channel, in x's dtype");
  require(totals.parts == of.parts && totals.channels == of.channels, "sums and statistics must be of the same groups");
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_elements(parts.size,
                         NormBackward<T>{{device_data<T>(x), device_data<T>(dy)},
                                         device_data<T>(dx),
                                         of,
                                         totals,
                                         parts.a_group,
                                         scaled,
                                         device_data<T>(scale),
                                         count > 0 ? static_cast<double>(count) : 1.0},
                         stream);
  });
}

}  // namespace partita
