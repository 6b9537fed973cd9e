#include "partita/base/dispatch.hpp"
#include "src/backend/alike.hpp"
#include "src/backend/reference.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace partita {

namespace {

/// A row of channels in double, the index of its largest entry (the first one if several are equal), and the logarithm
/// of the sum of exponentials.
struct LogSoftmax {
  std::vector<double> row;
  Index largest = 0;
  double log_sum = 0;

  double probability(Index c) const { return std::exp(row[static_cast<std::size_t>(c)] - log_sum); }

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

/// Calls f(row number, label, row as log-softmax) for each row. The label is a channel's index.
template <class F>
void for_labeled_rows(const Tensor& x, std::span<const std::int32_t> labels, F&& f) {
  const Index channels = x.extent('C');  // all channels are here: C is not sharded
  const auto rows = static_cast<Index>(labels.size());
  require(rows * channels == x.volume(), "there must be one label per row of channels");
  LogSoftmax softmax;
  dispatch_float(x.dtype(), [&](auto t) {
    for (Index i = 0; i < rows; ++i) {
      const Index label = labels[static_cast<std::size_t>(i)];
      if (label < 0 || label >= channels)
        fail("a label is {}, but the loss has {} classes; labels are 0 to {}", label, channels, channels - 1);
      softmax.read(x.as<decltype(t)>() + i * channels, channels);
      f(i, label, softmax);
    }
  });
}

/// Maps a row to the index of the first sum of its sample.
class SampleOf {
 public:
  explicit SampleOf(const Tensor& x, std::size_t sums) : channels_(x.extent('C')) {
    const Index samples = x.box().extent(0);
    require(static_cast<Index>(sums) == samples * channels_, "there must be one sum per sample and channel");
    rows_ = samples == 0 || channels_ == 0 ? 1 : std::max<Index>(x.volume() / samples / channels_, 1);
  }
  std::size_t operator()(Index row) const { return static_cast<std::size_t>(row / rows_ * channels_); }

 private:
  Index channels_, rows_ = 1;
};

}  // namespace

void ReferenceBackend::cross_entropy_forward(const Tensor& x, std::span<const std::int32_t> labels, double& loss,
                                             double& correct, Stream) {
  double sum = 0, hits = 0;
  for_labeled_rows(x, labels, [&](Index, Index label, const LogSoftmax& softmax) {
    sum += softmax.log_sum - softmax.row[static_cast<std::size_t>(label)];
    hits += softmax.largest == label ? 1 : 0;
  });
  loss += sum;
  correct += hits;
}

void ReferenceBackend::cross_entropy_backward(const Tensor& x, std::span<const std::int32_t> labels, double scale,
                                              const Tensor& dx, Stream) {
  check_alike(x, dx);
  for_labeled_rows(x, labels, [&](Index n, Index label, const LogSoftmax& softmax) {
    dispatch_float(dx.dtype(), [&](auto t) {
      using T = decltype(t);
      const auto channels = static_cast<Index>(softmax.row.size());
      T* to = dx.as<T>() + n * channels;
      for (Index c = 0; c < channels; ++c) {
        const double difference = softmax.probability(c) - (c == label ? 1.0 : 0.0);
        to[c] = static_cast<T>(static_cast<Accumulator<T>>(scale * difference));
      }
    });
  });
}

void ReferenceBackend::overlap_forward(const Tensor& x, std::span<const std::int32_t> labels, std::span<double> common,
                                       std::span<double> both, double& correct, Stream) {
  const SampleOf sample(x, common.size());
  std::fill(common.begin(), common.end(), 0.0);
  std::fill(both.begin(), both.end(), 0.0);
  for_labeled_rows(x, labels, [&](Index i, Index label, const LogSoftmax& softmax) {
    const std::size_t first = sample(i), right = first + static_cast<std::size_t>(label);
    for (std::size_t c = 0; c < softmax.row.size(); ++c) both[first + c] += softmax.probability(static_cast<Index>(c));
    both[right] += 1;
    common[right] += softmax.probability(label);
    correct += softmax.largest == label ? 1 : 0;
  });
}

// With d = dL/dp: dx = p (d - sum d p)
void ReferenceBackend::overlap_backward(const Tensor& x, std::span<const std::int32_t> labels,
                                        std::span<const double> of_common, std::span<const double> of_both,
                                        const Tensor& dx, Stream) {
  check_alike(x, dx);
  const SampleOf sample(x, of_common.size());
  std::vector<double> p, d;
  for_labeled_rows(x, labels, [&](Index i, Index label, const LogSoftmax& softmax) {
    const std::size_t first = sample(i), channels = softmax.row.size();
    p.resize(channels);
    d.assign(of_both.begin() + static_cast<std::ptrdiff_t>(first),
             of_both.begin() + static_cast<std::ptrdiff_t>(first + channels));
    d[static_cast<std::size_t>(label)] += of_common[first + static_cast<std::size_t>(label)];
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

double ReferenceBackend::difference_forward(bool absolute, const Tensor& x, const Tensor& target, Stream) {
  check_alike(x, target);
  double sum = 0;
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    for (Index i = 0; i < x.volume(); ++i) {
      const double difference = static_cast<double>(x.as<T>()[i]) - static_cast<double>(target.as<T>()[i]);
      sum += absolute ? std::abs(difference) : difference * difference;
    }
  });
  return sum;
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
