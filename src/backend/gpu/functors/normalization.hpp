#pragma once

#include "partita/base/accumulator.hpp"
#include "src/backend/common/activation_functions.hpp"
#include "src/backend/common/center_of.hpp"
#include "src/backend/common/moments.hpp"
#include "src/backend/common/norm_extents.hpp"
#include "src/backend/gpu/functors/launcher.hpp"
#include "src/backend/gpu/functors/to_element.hpp"

#include <cmath>
#include <type_traits>

namespace partita {

/// Numbers S N C of a normalization (norm_numbers).
struct NormNumbers : NormExtents {
  double* data;
  PARTITA_HOST_DEVICE double& operator()(Index s, Index part, Index c) const {
    return data[(s * parts + part) * channels + c];
  }
};

/// The group of a channel. GPUs divide slowly, and most groups are single channels.
PARTITA_HOST_DEVICE inline Index group_of(Index channel, Index a_group) {
  return a_group == 1 ? channel : channel / a_group;
}

/// The center about which each part and group is summed.
template <class T>
struct Centers {
  const T* x;
  Stack size;
  Index a_group;  // channels of a group
  PARTITA_HOST_DEVICE double of(Index part, Index g) const {
    return center_of_sums(size.rows * a_group, [&](Index i) {
      const Index row = group_of(i, a_group);
      return static_cast<double>(x[size.offset(part, row, g * a_group + i - row * a_group)]);
    });
  }
};

/// d and d^2, with d = x - center
template <class T>
struct ChannelMoments {
  Inputs<T> in;  // x
  Centers<T> centers;
  PARTITA_HOST_DEVICE auto column(Index part, Index c) const {
    return [center = centers.of(part, group_of(c, centers.a_group))](Index /*row*/, T x) {
      const double d = static_cast<double>(x) - center;
      return Sums<double, 2>{{d, d * d}};
    };
  }
};

/// The arrays of a backward: x, dy and, if `masks`, y.
template <class T, bool masks>
using MaskedInputs = std::conditional_t<masks, Inputs<T, T, T>, Inputs<T, T>>;

/// The gradient of an element; 0 where ReLU gave 0, if the output is passed too.
template <class A, class T>
PARTITA_HOST_DEVICE A passed(T dy) {
  return static_cast<A>(dy);
}
template <class A, class T>
PARTITA_HOST_DEVICE A passed(T dy, T y) {
  return ActivationFunction<Activation::Kind::relu>::gradient(static_cast<A>(y), static_cast<A>(dy), A(0));
}

/// dy and dy * xhat
template <class T, bool masks>
struct GradientMoments {
  MaskedInputs<T, masks> in;
  NormNumbers statistics;
  Index a_group;  // channels of a group
  PARTITA_HOST_DEVICE auto column(Index part, Index c) const {
    const Index g = group_of(c, a_group);
    return [mean = statistics(0, part, g), r = statistics(2, part, g)](Index /*row*/, T x, auto... dy) {
      const auto gradient = passed<double>(dy...);
      return Sums<double, 2>{{gradient, gradient * (static_cast<double>(x) - mean) * r}};
    };
  }
};

struct KeepNumbers {
  NormNumbers to;
  PARTITA_HOST_DEVICE void operator()(Index part, Index c, const Sums<double, 2>& sums) const {
    to(0, part, c) = sums.of[0];
    to(1, part, c) = sums.of[1];
  }
};

/// The sum over the channels of a group. A row is a number of a part, a column a group.
template <class T>
struct GroupChannels {
  NormNumbers from, to;
  const T* scale;  // null: 1
  Index a_group;
  PARTITA_HOST_DEVICE void operator()(Index row, Index g) const {
    const Index s = row / from.parts, part = row % from.parts;
    double sum = 0;
    for (Index c = g * a_group; c < (g + 1) * a_group; ++c)
      sum += from(s, part, c) * (scale == nullptr ? 1.0 : static_cast<double>(scale[c]));
    to(s, part, g) = sum;
  }
};

/// The gradients of shift (s = 0) and scale (s = 1) of a channel.
template <class T>
struct WriteWeightGradients {
  NormNumbers from{};
  T *dshift = nullptr, *dscale = nullptr;  // null: none are wanted
  bool adds = false;
  PARTITA_HOST_DEVICE void operator()(Index s, Index c) const {
    T* const to = s == 0 ? dshift : dscale;
    double sum = 0;
    for (Index part = 0; part < from.parts; ++part) sum += from(s, part, c);
    to[c] = to_element<T>((adds ? static_cast<double>(to[c]) : 0.0) + sum);
  }
};

/// From sums of d and d^2, with d = x - center.
template <class T>
struct NormMoments {
  NormNumbers from, to;
  Centers<T> centers;
  double own, count;  // elements of this rank, and of all
  PARTITA_HOST_DEVICE void operator()(Index part, Index g) const {
    const auto moments = shared_moments(from(0, part, g), from(1, part, g), centers.of(part, g), own, count);
    for (Index s = 0; s < 4; ++s) to(s, part, g) = moments[s];
  }
};

/// Running statistics in f64 (`wide`) or f32; null if there are none.
struct RunningNumbers {
  void *mean, *variance;
  bool wide;
  double keep, add, unbiased;
  PARTITA_HOST_DEVICE void advance(Index g, const MeanAndVariance& by) const {
    if (mean == nullptr) return;
    advance(mean, g, by.mean);
    advance(variance, g, unbiased * by.variance);
  }

 private:
  PARTITA_HOST_DEVICE void advance(void* numbers, Index g, double by) const {
    const auto advanced = [&](double value) { return keep * value + add * by; };
    if (wide) {
      auto& value = static_cast<double*>(numbers)[g];
      value = advanced(value);
    } else {
      auto& value = static_cast<float*>(numbers)[g];
      value = static_cast<float>(advanced(static_cast<double>(value)));
    }
  }
};

/// What is kept of a mean and a variance.
struct KeepStatistics {
  NormNumbers to;
  double count, epsilon;
  RunningNumbers running;
  PARTITA_HOST_DEVICE void operator()(Index part, Index g, const std::array<double, 4>& moments) const {
    const MeanAndVariance of = statistics_of(moments, count);
    to(0, part, g) = of.mean;
    to(1, part, g) = of.variance;
    to(2, part, g) = 1 / std::sqrt(of.variance + epsilon);
    running.advance(g, of);
  }
};

struct NormStatistics {
  NormNumbers from;
  KeepStatistics keep;
  PARTITA_HOST_DEVICE void operator()(Index part, Index g) const {
    keep(part, g, {from(0, part, g), from(1, part, g), from(2, part, g), from(3, part, g)});
  }
};

/// Ends the sums of ChannelMoments, where a channel is a group and no other rank adds to it.
template <class T>
struct KeepStatisticsOfSums {
  Centers<T> centers;
  KeepStatistics keep;
  PARTITA_HOST_DEVICE void operator()(Index part, Index c, const Sums<double, 2>& sums) const {
    keep(part, c, shared_moments(sums.of[0], sums.of[1], centers.of(part, c), keep.count, keep.count));
  }
};

template <class T>
struct GivenStatistics {
  const T *mean, *variance;
  NormNumbers to;
  double epsilon;
  PARTITA_HOST_DEVICE void operator()(Index /*row*/, Index c) const {
    to(0, 0, c) = static_cast<double>(mean[c]);
    to(1, 0, c) = static_cast<double>(variance[c]);
    to(2, 0, c) = 1 / std::sqrt(to(1, 0, c) + epsilon);
  }
};

/// y = factor * (x - center) + offset, or ReLU of it. The center is the mean, as far as the type of sums holds it; the
/// rest of the mean goes into the offset (docs/decisions/032-stable-normalization.md).
template <class T, bool relu>
struct NormForward {
  using A = Accumulator<T>;
  Inputs<T> in;  // x
  T* out;
  NormNumbers statistics;
  Index a_group;  // channels of a group
  const T *scale, *shift;
  PARTITA_HOST_DEVICE auto column(Index part, Index c) const {
    const Index g = group_of(c, a_group);
    const double factor = static_cast<double>(scale[c]) * statistics(2, part, g), mean = statistics(0, part, g);
    const double center = center_of<A>(mean);
    const double offset = static_cast<double>(shift[c]) - (mean - center) * factor;
    return [factor = static_cast<A>(factor), offset = static_cast<A>(offset), center = static_cast<A>(center)](
               Index /*row*/, T x) {
      const A value = factor * (static_cast<A>(x) - center) + offset;
      return to_element<T>(relu ? ActivationFunction<Activation::Kind::relu>::value(value, A(0)) : value);
    };
  }
};

/// dx = a * dy + b * (x - center) + c, with the center of NormForward
template <class T, bool masks>
struct NormBackward {
  using A = Accumulator<T>;
  MaskedInputs<T, masks> in;
  T* out;
  NormNumbers statistics, sums;
  Index a_group;  // channels of a group
  bool scaled;    // the sums hold the factors of scale
  const T* scale;
  double count;
  WriteWeightGradients<T> weights;
  PARTITA_HOST_DEVICE void once(Index part, Index channel) const {
    if (part > 0 || weights.dscale == nullptr) return;
    weights(0, channel);
    weights(1, channel);
  }
  PARTITA_HOST_DEVICE auto column(Index part, Index channel) const {
    const Index g = group_of(channel, a_group);
    const double r = statistics(2, part, g), a = static_cast<double>(scale[channel]) * r, of_sums = scaled ? r : a;
    const double b = -of_sums * r * sums(1, part, g) / count;
    const double center = center_of<A>(statistics(0, part, g));
    const double c = -of_sums * sums(0, part, g) / count - b * (statistics(0, part, g) - center);
    return [a = static_cast<A>(a), b = static_cast<A>(b), c = static_cast<A>(c), center = static_cast<A>(center)](
               Index /*row*/, T x, auto... dy) {
      return to_element<T>(a * passed<A>(dy...) + b * (static_cast<A>(x) - center) + c);
    };
  }
};

}  // namespace partita
