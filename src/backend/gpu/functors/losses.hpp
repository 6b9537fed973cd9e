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

/// The labels of rows, and what they count for (Labels).
struct RowLabels {
  const std::int32_t* of;
  const double* weights;  // by class; may be null
  Index classes, ignored;
  bool ignores;
  PARTITA_HOST_DEVICE bool counts(Index row) const { return !ignores || of[row] != ignored; }
  PARTITA_HOST_DEVICE bool is_valid(Index row) const { return !counts(row) || is_channel(of[row], classes); }
  PARTITA_HOST_DEVICE double weight_of(Index c) const { return weights != nullptr ? weights[c] : 1; }
  /// The weight of a row that counts; NaN if its label is no class.
  PARTITA_HOST_DEVICE double weight(Index row) const {
    return is_valid(row) ? weight_of(of[row]) : std::numeric_limits<double>::quiet_NaN();
  }
  /// The labels from a row on.
  PARTITA_HOST_DEVICE RowLabels from(Index row) const { return {of + row, weights, classes, ignored, ignores}; }
};

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
  RowLabels labels;
  SoftmaxRows of;
  Index channels;
  PARTITA_HOST_DEVICE Sums<double, 2> operator()(Index row, Index c) const {
    const T* entries = x + row * channels;
    const Index label = labels.of[row];
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
  double* smooth;  // null without smoothing
};
inline EntropyRows entropy_rows(double* numbers, Index rows, bool smooth) {
  return {numbers, numbers + rows, numbers + 2 * rows, numbers + 3 * rows, smooth ? numbers + 4 * rows : nullptr};
}

/// exp(x - largest), the label's entry, whether another entry before it is the largest, and with smoothing the weighted
/// distance from the largest. The row has the channels from `first` on.
template <class T>
struct EntropySums {
  const T* x;
  RowLabels labels;
  EntropyRows of;
  Index first, channels;
  PARTITA_HOST_DEVICE Sums<double, 4> operator()(Index row, Index c) const {
    const Index label = labels.of[row] - first;
    const double value = static_cast<double>(x[row * channels + c]), below = value - of.largest[row];
    const double mine = c == label ? value : 0.0;
    return {{std::exp(below), labels.is_valid(row) ? mine : std::numeric_limits<double>::quiet_NaN(),
             c < label && below == 0 ? 1.0 : 0.0, of.smooth != nullptr ? labels.weight_of(c + first) * below : 0}};
  }
};

struct KeepEntropySums {
  EntropyRows to;
  PARTITA_HOST_DEVICE void operator()(Index row, const Sums<double, 4>& sums) const {
    to.sum[row] = sums.of[0];
    to.labeled[row] = sums.of[1];
    to.before[row] = sums.of[2];
    if (to.smooth != nullptr) to.smooth[row] = sums.of[3];
  }
};

/// The loss of a row, whether its prediction is right, its weight, and 1 if it counts.
struct RowEntropy {
  EntropyRows of;
  RowLabels labels;
  double smoothing, smooth_share, sum_of_weights;
  PARTITA_HOST_DEVICE Sums<double, 4> operator()(Index /*group*/, Index row) const {
    if (!labels.counts(row)) return {};
    const bool right = of.labeled[row] == of.largest[row] && of.before[row] == 0;
    const double log_sum = std::log(of.sum[row]), weight = labels.weight(row);
    double loss = (1 - smoothing) * weight * ((of.largest[row] - of.labeled[row]) + log_sum);
    if (of.smooth != nullptr) loss += smooth_share * (sum_of_weights * log_sum - of.smooth[row]);
    return {{loss, right ? 1.0 : 0.0, weight, 1}};
  }
};

/// Adds the sums to the result of a loss, of `numbers` numbers. The loss and its weight are divided by `count`.
struct AddResult {
  double* result;
  double count;
  Index numbers;
  PARTITA_HOST_DEVICE void operator()(Index /*group*/, const Sums<double, 4>& sums) const {
    result[0] += sums.of[0] / count;
    result[1] += sums.of[1];
    if (numbers < 4) return;
    result[2] += sums.of[2] / count;
    result[3] += sums.of[3];
  }
};

/// own * (softmax(x) - onehot(label)) + share * (sum of weights * softmax(x) - weight), with own = (1 - smoothing) *
/// scale * weight[label] and share = smoothing * scale / classes
template <class T>
struct CrossEntropyGradient {
  Inputs<T> in;  // x
  T* out;
  RowLabels labels;
  EntropyRows of;
  Index first;  // channel of x
  double scale, share, sum_of_weights;
  PARTITA_HOST_DEVICE auto column(Index /*part*/, Index c) const {
    return [labels = labels, of = of, scale = scale, all = share * sum_of_weights,
            smooth = share != 0 ? share * labels.weight_of(c + first) : 0, c = c + first](Index row, T x) {
      if (!labels.counts(row)) return to_element<T>(Accumulator<T>(0));
      const double own = scale * labels.weight(row);
      const double p = std::exp(static_cast<double>(x) - of.largest[row]) / of.sum[row];
      const double mine = c == labels.of[row] ? own : 0;
      return to_element<T>(static_cast<Accumulator<T>>((own + all) * p - mine - smooth));
    };
  }
};

/// p * g and p + g of a row that counts, and channel. A part is a sample.
template <class T>
struct Overlap {
  Inputs<T> in;  // x
  RowLabels labels;
  SoftmaxRows of;
  Index rows, channels;  // of a sample
  PARTITA_HOST_DEVICE auto column(Index sample, Index c) const {
    const Index first = sample * rows;
    return [labels = labels.from(first), log_sum = of.log_sum + first, c](Index row, T x) {
      if (!labels.counts(row)) return Sums<double, 2>{};
      const double p = std::exp(static_cast<double>(x) - log_sum[row]);
      if (!labels.is_valid(row)) return Sums<double, 2>{{p, std::numeric_limits<double>::quiet_NaN()}};
      return c == labels.of[row] ? Sums<double, 2>{{p, p + 1}} : Sums<double, 2>{{0, p}};
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

/// Whether the prediction of a row is right, and 1 if it counts.
struct RowHit {
  SoftmaxRows of;
  RowLabels labels;
  PARTITA_HOST_DEVICE Sums<double, 4> operator()(Index /*group*/, Index row) const {
    return labels.counts(row) ? Sums<double, 4>{{0, of.hit[row], 0, 1}} : Sums<double, 4>{};
  }
};

/// Returns a part of the Dice loss and of its weight, and replaces its two sums by the derivatives.
struct DiceLoss {
  double *common, *both;
  double count, scale;
  PARTITA_HOST_DEVICE Sums<double, 4> operator()(Index /*group*/, Index i) const {
    const double score = (2 * common[i] + 1) / (both[i] + 1);
    common[i] = -2 / (both[i] + 1) / count * scale;
    both[i] = score / (both[i] + 1) / count * scale;
    return {{(1 - score) / count, 0, 1 / count, 0}};
  }
};

/// Adds the sums to a result, if there is one.
struct AddLoss {
  AddResult to;  // its result may be null
  PARTITA_HOST_DEVICE void operator()(Index group, const Sums<double, 4>& sums) const {
    if (to.result != nullptr) to(group, sums);
  }
};

/// With d = dL/dp: dx = p (d - sum d p), for all channels of a row.
template <class T>
struct OverlapGradient {
  const T* x;
  RowLabels labels;
  SoftmaxRows of;
  const double *common, *both;
  T* dx;
  Index rows, channels;  // of a sample
  PARTITA_HOST_DEVICE void operator()(Index /*one*/, Index row) const {
    if (!labels.counts(row)) {
      for (Index c = 0; c < channels; ++c) dx[row * channels + c] = to_element<T>(Accumulator<T>(0));
      return;
    }
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
    return both[at] + (c == labels.of[row] ? common[at] : 0);
  }
};

template <class T>
struct Difference {
  const T *x, *target;
  bool absolute;
  PARTITA_HOST_DEVICE Sums<double, 4> operator()(Index /*group*/, Index i) const {
    const double difference = static_cast<double>(x[i]) - static_cast<double>(target[i]);
    return {{absolute ? std::abs(difference) : difference * difference, 0, 0, 0}};
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
