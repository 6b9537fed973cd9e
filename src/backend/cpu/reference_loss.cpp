#include "partita/base/dispatch.hpp"
#include "src/backend/common/alike.hpp"
#include "src/backend/common/entropy_rows.hpp"
#include "src/backend/cpu/reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
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

/// Returns the label of a row. Throws Error if it is no class.
Index checked_label(const Tensor& labels, Index row, Index classes) {
  const Index label = labels.as<std::int32_t>()[row];
  if (label < 0 || label >= classes)
    fail("a label is {}, but the loss has {} classes; labels are 0 to {}", label, classes, classes - 1);
  return label;
}

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

/// Calls f(row number, label, row as log-softmax) for each row. The label is a channel's index.
template <class F>
void for_labeled_rows(const Tensor& x, const Tensor& labels, F&& f) {
  const Index channels = x.extent('C');  // all channels are here: C is not sharded
  const Index rows = labels.volume();
  require(labels.dtype() == DType::i32 && rows * channels == x.volume(), "there must be one label per row of channels");
  LogSoftmax softmax;
  dispatch_float(x.dtype(), [&](auto t) {
    for (Index i = 0; i < rows; ++i) {
      const Index label = checked_label(labels, i, channels);
      softmax.read(x.as<decltype(t)>() + i * channels, channels);
      f(i, label, softmax);
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

void ReferenceBackend::cross_entropy_maxima(const Tensor& x, const Tensor& numbers, Stream) {
  const Index rows = entropy_rows_of(x, numbers);
  for_entropy_rows(x, rows, [&](Index row, const auto& scores) {
    numbers.as<double>()[row] =
        scores.size() > 0 ? static_cast<double>(scores.maxCoeff()) : -std::numeric_limits<double>::infinity();
  });
}

void ReferenceBackend::cross_entropy_sums(const Tensor& x, const Tensor& labels, Index classes, const Tensor& numbers,
                                          Stream) {
  const Index rows = entropy_rows_of(x, numbers, labels), first = x.box()[1].lo;
  double *const largest = numbers.as<double>(), *const sum = largest + rows, *const labeled = sum + rows,
                *const before = labeled + rows;
  for_entropy_rows(x, rows, [&](Index row, const auto& scores) {
    const Index label = checked_label(labels, row, classes) - first, channels = scores.size();
    using A = typename std::decay_t<decltype(scores)>::Scalar;
    const auto most = static_cast<A>(largest[row]);
    sum[row] = static_cast<double>((scores - most).exp().sum());
    labeled[row] = label >= 0 && label < channels ? static_cast<double>(scores[label]) : 0;
    before[row] = static_cast<double>((scores.head(std::clamp<Index>(label, 0, channels)) == most).count());
  });
}

void ReferenceBackend::cross_entropy_loss(const Tensor& numbers, double count, const Tensor& result, Stream) {
  const Index rows = numbers.volume() / 4;
  const double *const largest = numbers.as<double>(), *const sum = largest + rows, *const labeled = sum + rows,
                      *const before = labeled + rows;
  double loss = 0, hits = 0;
  for (Index row = 0; row < rows; ++row) {
    loss += (largest[row] - labeled[row]) + std::log(sum[row]);  // small losses keep their digits
    hits += labeled[row] == largest[row] && before[row] == 0 ? 1 : 0;
  }
  result.as<double>()[0] += loss / count;
  result.as<double>()[1] += hits;
}

void ReferenceBackend::cross_entropy_backward(const Tensor& x, const Tensor& labels, const Tensor& numbers,
                                              double scale, const Tensor& dx, Stream) {
  check_alike(x, dx);
  const Index rows = entropy_rows_of(x, numbers, labels), first = x.box()[1].lo;
  const double *const largest = numbers.as<double>(), *const sum = largest + rows;
  for_entropy_rows(x, rows, [&](Index row, const auto& scores) {
    using A = typename std::decay_t<decltype(scores)>::Scalar;
    const Index channels = scores.size(), label = labels.as<std::int32_t>()[row] - first;
    Eigen::Array<A, Eigen::Dynamic, 1> gradient =
        static_cast<A>(scale) * ((scores - static_cast<A>(largest[row])).exp() / static_cast<A>(sum[row]));
    if (label >= 0 && label < channels) gradient[label] -= static_cast<A>(scale);
    dispatch_float(dx.dtype(), [&](auto t) {
      using T = decltype(t);
      std::transform(gradient.data(), gradient.data() + channels, dx.as<T>() + row * channels,
                     [](A value) { return static_cast<T>(value); });
    });
  });
}

void ReferenceBackend::overlap_forward(const Tensor& x, const Tensor& labels, const Tensor& sums, const Tensor& result,
                                       Stream stream) {
  const Overlaps of(x, sums);
  sums.zero(stream);
  double hits = 0;
  for_labeled_rows(x, labels, [&](Index i, Index label, const LogSoftmax& softmax) {
    double *common = of.common(i), *both = of.both(i);
    for (std::size_t c = 0; c < softmax.row.size(); ++c) both[c] += softmax.probability(static_cast<Index>(c));
    both[label] += 1;
    common[label] += softmax.probability(label);
    hits += softmax.largest == label ? 1 : 0;
  });
  result.as<double>()[1] += hits;
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
  if (result) result.as<double>()[0] += loss;
}

// With d = dL/dp: dx = p (d - sum d p)
void ReferenceBackend::overlap_backward(const Tensor& x, const Tensor& labels, const Tensor& derivatives,
                                        const Tensor& dx, Stream) {
  check_alike(x, dx);
  const Overlaps of(x, derivatives);
  std::vector<double> p, d;
  for_labeled_rows(x, labels, [&](Index i, Index label, const LogSoftmax& softmax) {
    const std::size_t channels = softmax.row.size();
    p.resize(channels);
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
  });
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
