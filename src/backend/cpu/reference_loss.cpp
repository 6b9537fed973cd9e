#include "partita/base/dispatch.hpp"
#include "src/backend/common/alike.hpp"
#include "src/backend/common/entropy_rows.hpp"
#include "src/backend/cpu/reference.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

namespace partita {

namespace {

/// A row of channels in double, the index of its largest entry (the first one if several are equal), and the logarithm
/// of the sum of exponentials.
struct LogSoftmax {
  std::vector<double> row;
  Index largest = 0;
  double log_sum = 0;

  double probability(Index c) const { return std::exp(row[c] - log_sum); }

  template <class T>
  void read(const T* x, Index channels) {
    row.resize(static_cast<std::size_t>(channels));
    std::transform(x, x + channels, row.begin(), [](T v) { return static_cast<double>(v); });
    const auto at = std::max_element(row.begin(), row.end());
    largest = at - row.begin();
    double sum = 0;
    for (const double v : row) sum += std::exp(v - *at);  // the largest is subtracted, so that nothing overflows
    log_sum = *at + std::log(sum);
  }
};

/// Returns the label of a row; none if the row counts for nothing. Throws Error if the label is no class.
std::optional<Index> checked_label(const Labels& labels, Index row) {
  const Index label = labels.of.as<std::int32_t>()[row];
  if (label == labels.ignored) return {};
  if (label < 0 || label >= labels.classes)
    fail("a label is {}, but the loss has {} classes; labels are 0 to {}", label, labels.classes, labels.classes - 1);
  return label;
}

double weight_of(const Labels& labels, Index label) { return labels.weights ? labels.weights.as<double>()[label] : 1; }

/// Adds to the result of a loss, of two numbers or of four.
void add_result(const Tensor& result, const std::array<double, 4>& numbers) {
  for (Index i = 0; i < result.volume(); ++i) result.as<double>()[i] += numbers[i];
}

/// The numbers of a cross-entropy, by row (Backend::cross_entropy_sums).
struct EntropyNumbers {
  EntropyNumbers(const Tensor& numbers, Index rows)
      : largest(numbers.as<double>()),
        sum(largest + rows),
        labeled(sum + rows),
        before(labeled + rows),
        smooth(before + rows) {}
  double *largest, *sum, *labeled, *before, *smooth;
};

/// Calls f(row number, array of its channels in the type of sums) for each row.
template <class F>
void for_entropy_rows(const Tensor& x, Index rows, F&& f) {
  const Index channels = x.extent('C');
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const T* data = x.as<T>();
    std::vector<A> sums(static_cast<std::size_t>(std::is_same_v<A, T> ? 0 : channels));
    for (Index row = 0; row < rows; ++row, data += channels) {
      const A* scores = nullptr;
      if constexpr (std::is_same_v<A, T>) {
        scores = data;
      } else {
        std::transform(data, data + channels, sums.begin(), [](T v) { return static_cast<A>(v); });
        scores = sums.data();
      }
      f(row, Eigen::Map<const Eigen::Array<A, Eigen::Dynamic, 1>>(scores, channels));
    }
  });
}

/// Calls f(row number, label, row as log-softmax) for each row that counts, and leave(row number) for the others. All
/// channels of a row are here, and the label is the index of one.
template <class F, class Leave>
void for_labeled_rows(const Tensor& x, const Labels& labels, F&& f, Leave&& leave) {
  const Index channels = x.extent('C'), rows = rows_of(x, labels);
  LogSoftmax softmax;
  dispatch_float(x.dtype(), [&](auto t) {
    for (Index i = 0; i < rows; ++i) {
      const auto label = checked_label(labels, i);
      if (!label) {
        leave(i);
        continue;
      }
      softmax.read(x.as<decltype(t)>() + i * channels, channels);
      f(i, *label, softmax);
    }
  });
}

/// The sums of the Dice loss, or their derivatives: two numbers for each sample and channel.
class Overlaps {
 public:
  Overlaps(const Tensor& x, const Tensor& numbers) : data_(numbers.as<double>()), channels_(x.extent('C')) {
    const Index samples = x.box().extent(0);
    require(numbers.dtype() == DType::f64 && numbers.volume() == 2 * samples * channels_,
            "there must be two sums per sample and channel");
    both_ = data_ + samples * channels_;
    if (samples > 0 && channels_ > 0) rows_ = std::max<Index>(x.volume() / samples / channels_, 1);
  }
  /// The numbers of a row's sample, by channel: of p * g, and of p + g.
  double* common(Index row) const { return data_ + row / rows_ * channels_; }
  double* both(Index row) const { return both_ + row / rows_ * channels_; }

 private:
  double *data_, *both_;
  Index channels_, rows_ = 1;
};

}  // namespace

void ReferenceBackend::cross_entropy_maxima(const Tensor& x, const Labels& labels, const Tensor& numbers, Stream) {
  for_entropy_rows(x, entropy_rows_of(x, numbers, labels), [&](Index row, const auto& scores) {
    numbers.as<double>()[row] =
        scores.size() > 0 ? static_cast<double>(scores.maxCoeff()) : -std::numeric_limits<double>::infinity();
  });
}

void ReferenceBackend::cross_entropy_sums(const Tensor& x, const Labels& labels, const Tensor& numbers, Stream) {
  const Index rows = entropy_rows_of(x, numbers, labels), first = x.box()[1].lo;
  const EntropyNumbers to(numbers, rows);
  for_entropy_rows(x, rows, [&](Index row, const auto& scores) {
    const Index channels = scores.size(), label = checked_label(labels, row).value_or(first) - first;
    using A = typename std::decay_t<decltype(scores)>::Scalar;
    const auto most = static_cast<A>(to.largest[row]);
    to.sum[row] = static_cast<double>((scores - most).exp().sum());
    to.labeled[row] = label >= 0 && label < channels ? static_cast<double>(scores[label]) : 0;
    to.before[row] = static_cast<double>((scores.head(std::clamp<Index>(label, 0, channels)) == most).count());
    if (labels.smoothing == 0) return;
    const auto below = (scores - most).template cast<double>();
    const double* weights = labels.weights ? labels.weights.as<double>() + first : nullptr;
    to.smooth[row] =
        weights != nullptr ? (below * Eigen::Map<const Eigen::ArrayXd>(weights, channels)).sum() : below.sum();
  });
}

void ReferenceBackend::cross_entropy_loss(const Labels& labels, const Tensor& numbers, double count,
                                          const Tensor& result, Stream) {
  const Index rows = labels.of.volume();
  const EntropyNumbers of(numbers, rows);
  const double share = labels.smoothing / static_cast<double>(labels.classes);  // of each class
  double loss = 0, hits = 0, weights = 0, counted = 0;
  for (Index row = 0; row < rows; ++row) {
    const auto label = checked_label(labels, row);
    if (!label) continue;
    const double log_sum = std::log(of.sum[row]), weight = weight_of(labels, *label);
    // The difference comes first: so small losses keep their digits.
    loss += (1 - labels.smoothing) * weight * ((of.largest[row] - of.labeled[row]) + log_sum);
    if (labels.smoothing > 0) loss += share * (labels.sum_of_weights * log_sum - of.smooth[row]);
    hits += of.labeled[row] == of.largest[row] && of.before[row] == 0 ? 1 : 0;
    weights += weight;
    counted += 1;
  }
  add_result(result, {loss / count, hits, weights / count, counted});
}

void ReferenceBackend::cross_entropy_backward(const Tensor& x, const Labels& labels, const Tensor& numbers,
                                              double scale, const Tensor& dx, Stream) {
  check_alike(x, dx);
  const Index rows = entropy_rows_of(x, numbers, labels), first = x.box()[1].lo;
  const EntropyNumbers of(numbers, rows);
  const double share = scale * labels.smoothing / static_cast<double>(labels.classes);  // of each class
  for_entropy_rows(x, rows, [&](Index row, const auto& scores) {
    using A = typename std::decay_t<decltype(scores)>::Scalar;
    const Index channels = scores.size();
    Eigen::Array<A, Eigen::Dynamic, 1> gradient(channels);
    if (const auto label = checked_label(labels, row)) {
      const double own = scale * (1 - labels.smoothing) * weight_of(labels, *label);
      gradient = static_cast<A>(own + share * labels.sum_of_weights) *
                 ((scores - static_cast<A>(of.largest[row])).exp() / static_cast<A>(of.sum[row]));
      if (const Index mine = *label - first; mine >= 0 && mine < channels) gradient[mine] -= static_cast<A>(own);
      if (labels.smoothing > 0)
        for (Index c = 0; c < channels; ++c) gradient[c] -= static_cast<A>(share * weight_of(labels, first + c));
    } else {
      gradient.setZero();
    }
    dispatch_float(dx.dtype(), [&](auto t) {
      using T = decltype(t);
      std::transform(gradient.data(), gradient.data() + channels, dx.as<T>() + row * channels,
                     [](A value) { return static_cast<T>(value); });
    });
  });
}

void ReferenceBackend::overlap_forward(const Tensor& x, const Labels& labels, const Tensor& sums, const Tensor& result,
                                       Stream stream) {
  const Overlaps of(x, sums);
  sums.zero(stream);
  double hits = 0, counted = 0;
  const auto add = [&](Index i, Index label, const LogSoftmax& softmax) {
    double *common = of.common(i), *both = of.both(i);
    for (std::size_t c = 0; c < softmax.row.size(); ++c) both[c] += softmax.probability(static_cast<Index>(c));
    both[label] += 1;
    common[label] += softmax.probability(label);
    hits += softmax.largest == label ? 1 : 0;
    counted += 1;
  };
  for_labeled_rows(x, labels, add, [](Index) {});
  add_result(result, {0, hits, 0, counted});
}

void ReferenceBackend::overlap_loss(const Tensor& sums, double count, double scale, const Tensor& result, Stream) {
  const Index number = sums.volume() / 2;
  double *common = sums.as<double>(), *both = common + number, loss = 0;
  for (Index i = 0; i < number; ++i) {
    const double score = (2 * common[i] + 1) / (both[i] + 1);
    loss += (1 - score) / count;
    common[i] = -2 / (both[i] + 1) / count * scale;
    both[i] = score / (both[i] + 1) / count * scale;
  }
  if (result) add_result(result, {loss, 0, static_cast<double>(number) / count, 0});
}

// With d = dL/dp: dx = p (d - sum d p)
void ReferenceBackend::overlap_backward(const Tensor& x, const Labels& labels, const Tensor& derivatives,
                                        const Tensor& dx, Stream) {
  check_alike(x, dx);
  const Overlaps of(x, derivatives);
  const auto channels = static_cast<std::size_t>(x.extent('C'));
  std::vector<double> p(channels), d;
  const auto leave = [&](Index i) {
    dispatch_float(dx.dtype(), [&](auto t) {
      using T = decltype(t);
      std::fill_n(dx.as<T>() + static_cast<std::size_t>(i) * channels, channels, T(0));
    });
  };
  const auto differentiate = [&](Index i, Index label, const LogSoftmax& softmax) {
    d.assign(of.both(i), of.both(i) + channels);
    d[label] += of.common(i)[label];
    double mean = 0;
    for (std::size_t c = 0; c < channels; ++c) {
      p[c] = softmax.probability(static_cast<Index>(c));
      mean += d[c] * p[c];
    }
    dispatch_float(dx.dtype(), [&](auto t) {
      using T = decltype(t);
      T* to = dx.as<T>() + static_cast<std::size_t>(i) * channels;
      for (std::size_t c = 0; c < channels; ++c)
        to[c] = static_cast<T>(static_cast<Accumulator<T>>(p[c] * (d[c] - mean)));
    });
  };
  for_labeled_rows(x, labels, differentiate, leave);
}

void ReferenceBackend::difference_forward(bool absolute, const Tensor& x, const Tensor& target, double count,
                                          const Tensor& result, Stream) {
  check_alike(x, target);
  double sum = 0;
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    for (Index i = 0; i < x.volume(); ++i) {
      const double difference = static_cast<double>(x.as<T>()[i]) - static_cast<double>(target.as<T>()[i]);
      sum += absolute ? std::abs(difference) : difference * difference;
    }
  });
  result.as<double>()[0] += sum / count;
}

void ReferenceBackend::difference_backward(bool absolute, const Tensor& x, const Tensor& target, double scale,
                                           const Tensor& dx, Stream) {
  check_alike(x, target);
  check_alike(x, dx);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    for (Index i = 0; i < x.volume(); ++i) {
      const double difference = static_cast<double>(x.as<T>()[i]) - static_cast<double>(target.as<T>()[i]);
      const double sign = difference > 0 ? 1 : difference < 0 ? -1 : difference;  // 0 or NaN
      dx.as<T>()[i] = static_cast<T>(static_cast<Accumulator<T>>(scale * (absolute ? sign : 2 * difference)));
    }
  });
}

}  // namespace partita
