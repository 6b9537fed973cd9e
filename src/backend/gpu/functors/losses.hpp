#pragma once

#include "partita/base/accumulator.hpp"
#include "src/backend/gpu/functors/launcher.hpp"
#include "src/backend/gpu/functors/to_element.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace partita {

/// What the losses of labels need of each row of channels: three f64 numbers. The largest entry is subtracted before
/// exponentials are taken, so that nothing overflows.
struct SoftmaxRows {
  static constexpr std::size_t bytes = 3 * sizeof(double);  // of a row
  double *largest, *log_sum, *hit;  // by row; hit is 1 if the label's entry is the first of the largest ones
};
/// Returns the numbers of `rows` rows, one after the other in memory of `bytes` bytes a row.
inline SoftmaxRows softmax_rows_in(std::span<std::byte> memory, Index rows) {
  auto* first = reinterpret_cast<double*>(memory.data());
  return {first, first + rows, first + 2 * rows};
}

PARTITA_HOST_DEVICE inline bool is_channel(Index label, Index channels) { return label >= 0 && label < channels; }

/// The entry of a row's label; NaN if the label is no channel, so that the loss is NaN.
template <class T>
PARTITA_HOST_DEVICE double labeled_entry(const T* row, Index label, Index channels) {
  return is_channel(label, channels) ? static_cast<double>(row[label]) : std::numeric_limits<double>::quiet_NaN();
}

template <class T>
struct RowEntry {
  const T* x;
  Index channels;
  PARTITA_HOST_DEVICE double operator()(Index row, Index c) const { return static_cast<double>(x[row * channels + c]); }
};

struct KeepLargest {
  double* to;
  PARTITA_HOST_DEVICE void operator()(Index row, double largest) const { to[row] = largest; }
};

/// exp(x - largest), and whether the entry keeps the label's from being the prediction: it is not smaller, or not
/// smaller and later. So it does if the label's entry is NaN or no channel.
template <class T>
struct RowExponential {
  const T* x;
  const std::int32_t* labels;
  SoftmaxRows of;
  Index channels;
  PARTITA_HOST_DEVICE Sums<double, 2> operator()(Index row, Index c) const {
    const T* entries = x + row * channels;
    const Index label = labels[row];
    const double value = static_cast<double>(entries[c]), mine = labeled_entry(entries, label, channels);
    const bool before = c < label ? !(value < mine) : c > label && !(value <= mine);
    return {{std::exp(value - of.largest[row]), before ? 1.0 : 0.0}};
  }
};

struct KeepLogSum {
  SoftmaxRows to;
  PARTITA_HOST_DEVICE void operator()(Index row, const Sums<double, 2>& sums) const {
    to.log_sum[row] = to.largest[row] + std::log(sums.of[0]);
    to.hit[row] = sums.of[1] == 0 ? 1 : 0;
  }
};

/// The numbers of cross-entropy, by row.
struct EntropyRows {
  double *largest, *sum, *labeled, *before;
};
inline EntropyRows entropy_rows(double* numbers, Index rows) {
  return {numbers, numbers + rows, numbers + 2 * rows, numbers + 3 * rows};
}

/// exp(x - largest), the label's entry, and whether another entry before it is the largest. The row has the channels
/// from `first` on.
template <class T>
struct EntropySums {
  const T* x;
  const std::int32_t* labels;
  EntropyRows of;
  Index first, channels, classes;
  PARTITA_HOST_DEVICE Sums<double, 3> operator()(Index row, Index c) const {
    const Index label = labels[row] - first;
    const auto value = static_cast<double>(x[row * channels + c]);
    const double mine =
        is_channel(labels[row], classes) ? (c == label ? value : 0.0) : std::numeric_limits<double>::quiet_NaN();
    return {{std::exp(value - of.largest[row]), mine, c < label && value == of.largest[row] ? 1.0 : 0.0}};
  }
};

struct KeepEntropySums {
  EntropyRows to;
  PARTITA_HOST_DEVICE void operator()(Index row, const Sums<double, 3>& sums) const {
    to.sum[row] = sums.of[0];
    to.labeled[row] = sums.of[1];
    to.before[row] = sums.of[2];
  }
};

/// The loss of a row, and whether its prediction is right.
struct RowEntropy {
  EntropyRows of;
  PARTITA_HOST_DEVICE Sums<double, 2> operator()(Index /*group*/, Index row) const {
    const bool right = of.labeled[row] == of.largest[row] && of.before[row] == 0;
    return {{(of.largest[row] - of.labeled[row]) + std::log(of.sum[row]), right ? 1.0 : 0.0}};
  }
};

/// Adds the sums to the result of a step; the first one is divided by `count`.
struct AddResult {
  double* result;
  double count;
  PARTITA_HOST_DEVICE void operator()(Index /*group*/, const Sums<double, 2>& sums) const {
    result[0] += sums.of[0] / count;
    result[1] += sums.of[1];
  }
};

/// scale * (softmax(x) - onehot(label))
template <class T>
struct CrossEntropyGradient {
  Inputs<T> in;  // x
  T* out;
  const std::int32_t* labels;
  EntropyRows of;
  Index first;  // channel of x
  double scale;
  PARTITA_HOST_DEVICE auto column(Index /*part*/, Index c) const {
    return [labels = labels, of = of, scale = scale, c = c + first](Index row, T x) {
      const double p = std::exp(static_cast<double>(x) - of.largest[row]) / of.sum[row];
      return to_element<T>(static_cast<Accumulator<T>>(scale * (p - (c == labels[row] ? 1.0 : 0.0))));
    };
  }
};

/// p * g and p + g of a row and channel. A part is a sample.
template <class T>
struct Overlap {
  Inputs<T> in;  // x
  const std::int32_t* labels;
  SoftmaxRows of;
  Index rows, channels;  // of a sample
  PARTITA_HOST_DEVICE auto column(Index sample, Index c) const {
    const Index first = sample * rows;
    return [labels = labels + first, log_sum = of.log_sum + first, channels = channels, c](Index row, T x) {
      const double p = std::exp(static_cast<double>(x) - log_sum[row]);
      if (!is_channel(labels[row], channels)) return Sums<double, 2>{{p, std::numeric_limits<double>::quiet_NaN()}};
      return c == labels[row] ? Sums<double, 2>{{p, p + 1}} : Sums<double, 2>{{0, p}};
    };
  }
};

/// Adds to two sums of each sample and channel.
struct AddOverlap {
  double* sums;
  Index samples, channels;  // of the whole tensor
  PARTITA_HOST_DEVICE void operator()(Index sample, Index c, const Sums<double, 2>& two) const {
    sums[sample * channels + c] += two.of[0];
    sums[(samples + sample) * channels + c] += two.of[1];
  }
};

struct RowHit {
  SoftmaxRows of;
  PARTITA_HOST_DEVICE Sums<double, 2> operator()(Index /*group*/, Index row) const { return {{0, of.hit[row]}}; }
};

/// Returns a part of the Dice loss, and replaces its two sums by the derivatives.
struct DiceLoss {
  double *common, *both;
  double count, scale;
  PARTITA_HOST_DEVICE Sums<double, 2> operator()(Index /*group*/, Index i) const {
    const double score = (2 * common[i] + 1) / (both[i] + 1);
    common[i] = -2 / (both[i] + 1) / count * scale;
    both[i] = score / (both[i] + 1) / count * scale;
    return {{(1 - score) / count, 0}};
  }
};

/// Adds the first sum to a result, if there is one.
struct AddLoss {
  double* result;  // may be null
  PARTITA_HOST_DEVICE void operator()(Index /*group*/, const Sums<double, 2>& sums) const {
    if (result != nullptr) result[0] += sums.of[0];
  }
};

/// With d = dL/dp: dx = p (d - sum d p), for all channels of a row.
template <class T>
struct OverlapGradient {
  const T* x;
  const std::int32_t* labels;
  SoftmaxRows of;
  const double *common, *both;
  T* dx;
  Index rows, channels;  // of a sample
  PARTITA_HOST_DEVICE void operator()(Index /*one*/, Index row) const {
    double mean = 0;
    for (Index c = 0; c < channels; ++c) mean += derivative(row, c) * probability(row, c);
    for (Index c = 0; c < channels; ++c)
      dx[row * channels + c] =
          to_element<T>(static_cast<Accumulator<T>>(probability(row, c) * (derivative(row, c) - mean)));
  }

 private:
  PARTITA_HOST_DEVICE double probability(Index row, Index c) const {
    return std::exp(static_cast<double>(x[row * channels + c]) - of.log_sum[row]);
  }
  PARTITA_HOST_DEVICE double derivative(Index row, Index c) const {
    const Index at = row / rows * channels + c;
    return both[at] + (c == labels[row] ? common[at] : 0);
  }
};

template <class T>
struct Difference {
  const T *x, *target;
  bool absolute;
  PARTITA_HOST_DEVICE Sums<double, 2> operator()(Index /*group*/, Index i) const {
    const double difference = static_cast<double>(x[i]) - static_cast<double>(target[i]);
    return {{absolute ? std::abs(difference) : difference * difference, 0}};
  }
};

template <class T>
struct DifferenceGradient {
  Inputs<T, T> in;  // x, target
  T* out;
  bool absolute;
  double scale;
  PARTITA_HOST_DEVICE auto column(Index /*part*/, Index /*i*/) const {
    return [absolute = absolute, scale = scale](Index /*row*/, T x, T target) {
      const double difference = static_cast<double>(x) - static_cast<double>(target);
      const double sign = difference > 0 ? 1 : difference < 0 ? -1 : difference;  // 0 or NaN
      return to_element<T>(static_cast<Accumulator<T>>(scale * (absolute ? sign : 2 * difference)));
    };
  }
};

}  // namespace partita
