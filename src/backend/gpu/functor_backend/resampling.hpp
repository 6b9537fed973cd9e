#pragma once

#include "partita/base/dispatch.hpp"
#include "src/backend/common/geometry.hpp"
#include "src/backend/gpu/functor_backend/functor_backend.hpp"
#include "src/backend/gpu/functors/elementwise.hpp"
#include "src/backend/gpu/functors/resampling.hpp"

namespace partita {

/// A tensor as samples of rows of channels, which are the innermost dimension.
inline Stack samples_of(const Tensor& x) {
  const Index samples = x.box().extent(0), channels = x.box().extent(1), vectors = samples * channels;
  return {samples, vectors == 0 ? 0 : x.volume() / vectors, channels};
}

template <class Launcher>
void FunctorBackend<Launcher>::spatial_sum(const Tensor& x, double scale, const Tensor& y, Stream stream) {
  require(x.dtype() == y.dtype() && y.names() == "NC" && x.box()[0] == y.box()[0] && x.box()[1] == y.box()[1],
          "both tensors must have the same dtype, samples and channels");
  const Stack size = samples_of(x);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.template reduce_columns<double, 1>(size, ElementOf<T>{{device_data<T>(x)}},
                                               KeepScaled<T>{device_data<T>(y), scale, size.columns}, stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::spatial_spread(const Tensor& dy, double scale, const Tensor& dx, Stream stream) {
  require(dx.dtype() == dy.dtype() && dy.names() == "NC" && dx.box()[0] == dy.box()[0] && dx.box()[1] == dy.box()[1],
          "both tensors must have the same dtype, samples and channels");
  const Stack size = samples_of(dx);
  dispatch_float(dx.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_elements(
        size, Spread<T>{{}, device_data<T>(dx), device_data<T>(dy), static_cast<Accumulator<T>>(scale), size.columns},
        stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::resample_forward(std::span<const Resampling> dims, const Tensor& x, const Tensor& y,
                                                Stream stream) {
  if (y.volume() == 0) return;
  require(x.dtype() == y.dtype() && x.box()[1] == y.box()[1], "x and y must have the same dtype and channels");
  const Positions outputs(y.box());
  const Index channels = y.box().extent(1);
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_each(
        outputs.count(), channels,
        Resample<T>{Resamplings(dims), outputs, lattice_of(x), device_data<T>(x), device_data<T>(y), channels}, stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::resample_backward(std::span<const Resampling> dims, const Tensor& dy, const Tensor& dx,
                                                 Stream stream) {
  if (dy.volume() == 0 || dx.volume() == 0) return;
  require(dx.dtype() == dy.dtype() && dx.box()[1] == dy.box()[1], "dx and dy must have the same dtype and channels");
  const Positions inputs(dx.box());
  const Index channels = dx.box().extent(1);
  dispatch_float(dx.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_each(inputs.count(), channels,
                     ResampleBackward<T>{Resamplings(dims), inputs, lattice_of(dy), device_data<T>(dy),
                                         device_data<T>(dx), channels},
                     stream);
  });
}

/// Returns a block's extents in the dimensions D H W; 1 where there is no such dimension.
inline std::array<Index, 3> three_extents(std::span<const Index> block) {
  std::array<Index, 3> all{1, 1, 1};
  std::copy(block.begin(), block.end(), all.end() - static_cast<std::ptrdiff_t>(block.size()));
  return all;
}

template <class Launcher>
void FunctorBackend<Launcher>::space_to_depth(std::span<const Index> block, const Tensor& x, const Tensor& y,
                                              Stream stream) {
  if (x.volume() == 0 || y.volume() == 0) return;
  const Positions places(x.box());
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_each(places.count(), x.box().extent(1),
                     MoveBlocks<T>{places, lattice_of(x), lattice_of(y), three_extents(block), device_data<T>(x),
                                   device_data<T>(y), true},
                     stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::depth_to_space(std::span<const Index> block, const Tensor& dy, const Tensor& dx,
                                              Stream stream) {
  if (dx.volume() == 0 || dy.volume() == 0) return;
  const Positions places(dx.box());
  dispatch_float(dx.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_each(places.count(), dx.box().extent(1),
                     MoveBlocks<T>{places, lattice_of(dx), lattice_of(dy), three_extents(block), device_data<T>(dy),
                                   device_data<T>(dx), false},
                     stream);
  });
}

}  // namespace partita
