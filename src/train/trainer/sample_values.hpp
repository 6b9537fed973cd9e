#pragma once

#include "partita/base/dispatch.hpp"
#include "partita/device/tensor.hpp"
#include "src/base/rounded.hpp"

#include <cmath>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace partita {

/// A box without its first dimension, N.
inline Box inside_of(const Box& box) {
  Box inside(box.dims() - 1);
  for (int d = 1; d < box.dims(); ++d) inside[d - 1] = box[d];
  return inside;
}

/// Copies `places` rows of `channels` values, of which `values` has the channels first. Returns false if one of them is
/// not finite in the type of `to`.
template <class T, class Value>
bool copy_channels_last(std::span<const Value> values, Index channels, Index places, T* to) {
  bool finite = true;
  const auto put = [&](Index i) {
    *to = rounded<T>(values[i]);
    if constexpr (!std::is_integral_v<T>) finite &= (Eigen::numext::isfinite)(*to);
    ++to;
  };
  if (channels == 1 || places == 1) {
    for (Index i = 0; i < channels * places; ++i) put(i);
  } else {
    for (Index place = 0; place < places; ++place)
      for (Index c = 0; c < channels; ++c) put(c * places + place);
  }
  return finite;
}

/// Returns the largest number of a floating-point type.
inline double largest(DType dtype) {
  return dispatch_float(dtype, [](auto t) { return static_cast<double>(Eigen::NumTraits<decltype(t)>::highest()); });
}

/// Throws Error if one of `values` is a number that `dtype` rounds to infinity. `which` names where they are.
inline void check_range(std::string_view which, std::span<const double> values, DType dtype) {
  dispatch_float(dtype, [&](auto t) {
    for (const double value : values)
      if (std::isfinite(value) && !(Eigen::numext::isfinite)(rounded<decltype(t)>(value)))
        fail("{} has the value {:g}, but {} holds numbers up to {:g}; scale the values, or use --dtype {}", which,
             value, name(dtype), largest(dtype), std::abs(value) > largest(DType::f32) ? "f64" : "f32");
  });
}

/// Sets the samples of a tensor N ...: `write(n, values)` sets those of position n in logical order, of type Value or
/// double. The tensor has channels last. Throws Error if its type cannot hold a number; `which(n)` names the sample.
template <class Value, class Write, class Which>
void write_samples(const Tensor& tensor, const Write& write, const Which& which) {
  const Box& box = tensor.box();
  if (box.empty()) return;
  const Index channels = tensor.extent('C'), volume = tensor.volume() / box.extent(0), places = volume / channels;
  std::vector<Value> values(static_cast<std::size_t>(volume));
  for (Index n = box[0].lo; n < box[0].hi; ++n) {
    write(n, std::span<Value>(values));
    const bool finite = dispatch(tensor.dtype(), [&](auto t) {
      auto* to = tensor.as<decltype(t)>() + (n - box[0].lo) * volume;
      return copy_channels_last<decltype(t), Value>(values, channels, places, to);
    });
    if constexpr (!std::is_integral_v<Value>) {
      if (finite) continue;
      std::vector<double> exact(values.size());
      write(n, std::span<double>(exact));
      check_range(which(n), exact, tensor.dtype());
    }
  }
}

}  // namespace partita
