#include "partita/base/dispatch.hpp"
#include "src/backend/common/attention_checks.hpp"
#include "src/backend/common/channel_rows.hpp"
#include "src/backend/common/dispatch_gate.hpp"
#include "src/backend/common/pair_number.hpp"
#include "src/backend/common/pair_turns.hpp"
#include "src/backend/common/scratch.hpp"
#include "src/backend/common/sequence_checks.hpp"
#include "src/backend/cpu/reference.hpp"
#include "src/backend/cpu/wide_rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace partita {

namespace {

/// The numbers by which a row is normalized: xhat = (x - center - mean) * r. The center is an element of the row, so
/// that the mean is rounded as the deviations are, however large the elements are.
template <class A>
struct RowStatistics {
  A center = 0, mean = 0, r = 1;

  RowStatistics(const RowNorm& norm, const A* x, Index channels) {
    const A count = static_cast<A>(channels);
    if (norm.centered) {
      center = x[0];
      mean = sum_of_row<A>(channels, [x, from = center](Index c) { return x[c] - from; }) / count;
    }
    const A squares = sum_of_row<A>(channels, [x, from = center, by = mean](Index c) {
      const A d = x[c] - from - by;
      return d * d;
    });
    r = static_cast<A>(1 / std::sqrt(static_cast<double>(squares / count) + norm.epsilon));
  }
  A xhat(A x) const { return (x - center - mean) * r; }
};

/// Returns the weights of the channels in the type of sums; zeros if there are none.
template <class A>
std::vector<A> weights_of(const Tensor& vector, Index channels) {
  std::vector<A> weights(static_cast<std::size_t>(channels));
  for (Index c = 0; vector && c < channels; ++c) weights[c] = static_cast<A>(vector.get(c));
  return weights;
}

template <class T, class A>
void normalize_row(const RowNorm& norm, Index channels, const A* __restrict x, const A* __restrict scale,
                   const A* __restrict shift, T* __restrict y) {
  const RowStatistics of(norm, x, channels);
  for (Index c = 0; c < channels; ++c) y[c] = static_cast<T>(scale[c] * of.xhat(x[c]) + shift[c]);
}

/// Computes dx of one row, or adds it to dx.
template <bool adds, class T, class A>
void row_gradient(const RowStatistics<A>& of, bool centered, Index channels, const A* __restrict x,
                  const A* __restrict dy, const A* __restrict scale, T* __restrict dx) {
  const A count = static_cast<A>(channels);
  const auto gradient = [=](Index c) { return dy[c] * scale[c]; };
  const A mean = centered ? sum_of_row<A>(channels, gradient) / count : A(0);
  const A slope = sum_of_row<A>(channels, [=](Index c) { return gradient(c) * of.xhat(x[c]); }) / count;
  for (Index c = 0; c < channels; ++c) {
    const A value = of.r * (gradient(c) - mean - of.xhat(x[c]) * slope);
    dx[c] = static_cast<T>(adds ? static_cast<A>(dx[c]) + value : value);
  }
}

/// Adds what a row contributes to the gradients of scale and shift.
template <class A>
void add_weight_gradients(const RowStatistics<A>& of, Index channels, const A* __restrict x, const A* __restrict dy,
                          double* __restrict dscale, double* __restrict dshift) {
  for (Index c = 0; c < channels; ++c) {
    dscale[c] += static_cast<double>(dy[c] * of.xhat(x[c]));
    dshift[c] += static_cast<double>(dy[c]);
  }
}

/// The rows of a table, or of one for each place, that its box holds.
template <class T>
struct TableRows {
  T* data;
  Interval held;
  Index channels, tables;
  TableRows(const Tensor& table, T* its_data)
      : data(its_data), held(table.box()[0]), channels(table.extent('C')), tables(table.extent('L')) {}
  /// Returns a token's row for the row of y of that number; null if the box lacks it.
  T* of(Index token, Index row) const {
    if (token < held.lo || token >= held.hi) return nullptr;
    return data + ((token - held.lo) * tables + row % tables) * channels;
  }
};

/// Throws Error for a token that no row of the tables belongs to.
[[noreturn]] void fail_token(Index token, Index vocabulary, const Tensor& table, const Tensor& y, Index row) {
  if (table.find('L') < 0)
    fail("a token is {}, but the vocabulary has {} entries; tokens are 0 to {}", token, vocabulary, vocabulary - 1);
  const Index tables = table.extent('L');
  fail("sample {} of a microbatch has the index {} in table {}, but the tables have {} rows; indices are 0 to {}",
       y.box()[0].lo + row / tables, token, table.box()[2].lo + row % tables, vocabulary, vocabulary - 1);
}

/// z_i of an interaction: the vector of `dense`, or a place of `vectors`, of one sample.
template <class T>
struct Interacting {
  T *dense, *vectors;
  Index channels, places;
  Interacting(const Tensor& all, const Tensor& one, Index n)
      : dense(one.as<T>() + n * one.extent('C')),
        vectors(all.as<T>() + n * one.extent('C') * all.extent('L')),
        channels(one.extent('C')),
        places(all.extent('L')) {}
  T* operator()(Index i) const { return i == 0 ? dense : vectors + (i - 1) * channels; }
};

/// Turns the pairs of one head. Its halves do not overlap.
template <class T, class A>
void turn_head(Index pairs, const A* __restrict cosine, const A* __restrict sine, T* __restrict low,
               T* __restrict high) {
  for (Index i = 0; i < pairs; ++i) {
    const A a = static_cast<A>(low[i]), b = static_cast<A>(high[i]);
    low[i] = static_cast<T>(a * cosine[i] - b * sine[i]);
    high[i] = static_cast<T>(a * sine[i] + b * cosine[i]);
  }
}

}  // namespace

void ReferenceBackend::row_norm_forward(const RowNorm& norm, const Tensor& x, const Tensor& scale, const Tensor& shift,
                                        const Tensor& y, Stream) {
  check_alike(x, y);
  check_row_weight(scale, x);
  if (shift) check_row_weight(shift, x);
  const ChannelRows size(x);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const auto scales = weights_of<A>(scale, size.channels), shifts = weights_of<A>(shift, size.channels);
    const WideRow<T> wide(size.channels);
    for (Index at = 0; at < x.volume(); at += size.channels)
      normalize_row(norm, size.channels, wide(x.as<T>() + at), scales.data(), shifts.data(), y.as<T>() + at);
  });
}

void ReferenceBackend::row_norm_backward(const RowNorm& norm, const Tensor& x, const Tensor& dy, const Tensor& scale,
                                         const Tensor& added, const Tensor& dx, const RowNormWeights& weights, Stream) {
  check_row_gradients(x, dy, scale, added, dx, weights);
  const Index channels = ChannelRows(x).channels;
  std::vector<double> of_scale(static_cast<std::size_t>(channels)), of_shift(of_scale.size());
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const auto scales = weights_of<Accumulator<T>>(scale, channels);
    const WideRow<T> wide_x(channels), wide_dy(channels);
    for (Index at = 0; at < x.volume(); at += channels) {
      const auto *const row = wide_x(x.as<T>() + at), *const gradient = wide_dy(dy.as<T>() + at);
      const RowStatistics of(norm, row, channels);
      T* const to = dx ? dx.as<T>() + at : nullptr;
      if (added && added.data() != dx.data()) std::copy_n(added.as<T>() + at, channels, to);
      if (added)
        row_gradient<true>(of, norm.centered, channels, row, gradient, scales.data(), to);
      else if (dx)
        row_gradient<false>(of, norm.centered, channels, row, gradient, scales.data(), to);
      if (weights.dscale) add_weight_gradients(of, channels, row, gradient, of_scale.data(), of_shift.data());
    }
  });
  const auto keep = [&](const Tensor& to, const std::vector<double>& sums) {
    for (Index c = 0; to && c < channels; ++c) to.set(c, (weights.write == Write::add ? to.get(c) : 0) + sums[c]);
  };
  keep(weights.dscale, of_scale);
  keep(weights.dshift, of_shift);
}

void ReferenceBackend::embed_forward(const Tensor& tokens, Index vocabulary, const Tensor& table, double scale,
                                     const Tensor& y, Stream) {
  check_embedding(tokens, table, y);
  const Index bag = bag_of(tokens, y);
  if (bag == 0) return;
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const TableRows<T> from(table, table.as<T>());
    const auto factor = static_cast<A>(scale);
    std::vector<A> sum(static_cast<std::size_t>(from.channels));
    for (Index i = 0; i < tokens.volume();) {
      const Index row = i / bag;
      std::fill(sum.begin(), sum.end(), A(0));
      for (const Index end = i + bag; i < end; ++i) {
        const Index token = tokens.as<std::int32_t>()[i];
        if (token < 0 || token >= vocabulary) fail_token(token, vocabulary, table, y, row);
        if (const T* entry = from.of(token, row))
          for (Index c = 0; c < from.channels; ++c) sum[c] += static_cast<A>(entry[c]);
      }
      T* to = y.as<T>() + row * from.channels;
      for (Index c = 0; c < from.channels; ++c) to[c] = static_cast<T>(factor * sum[c]);
    }
  });
}

void ReferenceBackend::embed_backward(const Tensor& tokens, const Tensor& dy, double scale, const Tensor& dtable,
                                      Write write, Stream stream) {
  check_embedding(tokens, dtable, dy);
  if (write == Write::over) dtable.zero(stream);
  const Index bag = bag_of(tokens, dy);
  if (bag == 0) return;
  dispatch_float(dy.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const Widened<T> sums(dtable.as<T>(), dtable.volume());
    const TableRows to(dtable, sums.data());
    const auto factor = static_cast<A>(scale);
    for (Index i = 0; i < tokens.volume(); ++i) {
      auto* sum = to.of(tokens.as<std::int32_t>()[i], i / bag);
      if (sum == nullptr) continue;
      const T* from = dy.as<T>() + i / bag * to.channels;
      for (Index c = 0; c < to.channels; ++c) sum[c] += factor * static_cast<A>(from[c]);
    }
    sums.store();
  });
}

void ReferenceBackend::softmax_heads(Index heads, bool causal, const Tensor& segments, const Tensor& x, Stream) {
  const ScoreSizes size(x, heads);
  const SegmentIds ids = segment_ids(segments, x.box(), x.box());
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    using Row = Eigen::Array<A, Eigen::Dynamic, 1>;
    const WideRow<T> wide(size.keys);
    const Scratch<A> work(size.keys);
    for (Index r = 0; r < size.rows; ++r) {
      T* row = x.as<T>() + r * size.keys;
      const Index sample = r / heads / x.extent('L'), place = r / heads % x.extent('L');
      const Index seen = causal ? place + 1 : size.keys;
      const auto hide = [&](Eigen::Map<Row>& all, A value) {
        for (Index c = 0; c < seen && ids.ids != nullptr; ++c)
          if (!ids.same(sample, place, c)) all[c] = value;
      };
      Eigen::Map<Row> weights(work.data(), seen);
      weights = Eigen::Map<const Row>(wide(row), seen);
      hide(weights, -std::numeric_limits<A>::infinity());
      weights = (weights - weights.maxCoeff()).exp();
      hide(weights, 0);
      weights *= 1 / weights.sum();
      for (Index c = 0; c < seen; ++c) row[c] = static_cast<T>(weights[c]);
      std::fill(row + seen, row + size.keys, T(0));
    }
  });
}

void ReferenceBackend::softmax_heads_backward(Index heads, double scale, const Tensor& y, const Tensor& dropped,
                                              const Tensor& dx, Stream) {
  check_alike(y, dropped);
  check_alike(y, dx);
  const ScoreSizes size(y, heads);
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const WideRow<T> wide_y(size.keys), wide_dropped(size.keys), wide_dx(size.keys);
    for (Index r = 0; r < size.rows; ++r) {
      const Index first = r * size.keys;
      const A *const weights = wide_y(y.as<T>() + first),
                     *const dropped_weights = wide_dropped(dropped.as<T>() + first),
                     *const slopes = wide_dx(dx.as<T>() + first);
      const A mean = sum_of_row<A>(size.keys, [=](Index c) { return dropped_weights[c] * slopes[c]; });
      T* to = dx.as<T>() + first;
      for (Index c = 0; c < size.keys; ++c)
        to[c] = static_cast<T>(static_cast<A>(scale) * (dropped_weights[c] * slopes[c] - weights[c] * mean));
    }
  });
}

void ReferenceBackend::interact_forward(const Tensor& vectors, const Tensor& dense, const Tensor& y, Stream) {
  check_interaction(vectors, dense, y);
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    for (Index n = 0; n < y.box().extent(0); ++n) {
      const Interacting<T> z(vectors, dense, n);
      T* to = std::copy_n(z.dense, z.channels, y.as<T>() + n * y.extent('C'));
      for (Index i = 1; i <= z.places; ++i)
        for (Index j = 0; j < i; ++j)
          *to++ = static_cast<T>(sum_of_row<A>(
              z.channels, [a = z(i), b = z(j)](Index c) { return static_cast<A>(a[c]) * static_cast<A>(b[c]); }));
    }
  });
}

void ReferenceBackend::interact_backward(const Tensor& vectors, const Tensor& dense, const Tensor& dy,
                                         const Tensor& dvectors, const Tensor& ddense, Stream) {
  check_interaction(vectors, dense, dy);
  check_alike(vectors, dvectors);
  check_alike(dense, ddense);
  dispatch_float(dy.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    std::vector<A> sum(static_cast<std::size_t>(dense.extent('C')));
    for (Index n = 0; n < dy.box().extent(0); ++n) {
      const Interacting<T> z(vectors, dense, n), dz(dvectors, ddense, n);
      const T* from = dy.as<T>() + n * dy.extent('C');
      for (Index i = 0; i <= z.places; ++i) {
        for (Index c = 0; c < z.channels; ++c) sum[c] = i == 0 ? static_cast<A>(from[c]) : A(0);
        for (Index j = 0; j <= z.places; ++j) {
          if (j == i) continue;
          const auto weight = static_cast<A>(from[z.channels + pair_number(i, j)]);
          const T* other = z(j);
          for (Index c = 0; c < z.channels; ++c) sum[c] += weight * static_cast<A>(other[c]);
        }
        for (Index c = 0; c < z.channels; ++c) dz(i)[c] = static_cast<T>(sum[c]);
      }
    }
  });
}

void ReferenceBackend::gate_forward(const Activation& f, const Tensor& x, const Tensor& y, Stream) {
  check_gate(x, y);
  dispatch_gate(f, x.dtype(), [&, count = y.volume()](auto t, auto gate) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const T* from = x.as<T>();
    T* to = y.as<T>();
    for (Index i = 0; i < count; ++i)
      to[i] = static_cast<T>(gate.value(static_cast<A>(from[2 * i]), static_cast<A>(from[2 * i + 1])));
  });
}

void ReferenceBackend::gate_backward(const Activation& f, const Tensor& x, const Tensor& dy, const Tensor& dx, Stream) {
  check_gate(x, dy);
  check_alike(x, dx);
  dispatch_gate(f, x.dtype(), [&, count = dy.volume()](auto t, auto gate) {
    using T = decltype(t);
    using A = Accumulator<T>;
    const T *from = x.as<T>(), *gradient = dy.as<T>();
    T* to = dx.as<T>();
    for (Index i = 0; i < count; ++i) {
      const auto two =
          gate.gradient(static_cast<A>(from[2 * i]), static_cast<A>(from[2 * i + 1]), static_cast<A>(gradient[i]));
      to[2 * i] = static_cast<T>(two[0]);
      to[2 * i + 1] = static_cast<T>(two[1]);
    }
  });
}

// A row is copied and then turned where it is, so that x and y may be one tensor.
void ReferenceBackend::rotate(const Rotation& rotation, const Tensor& x, const Tensor& y, Stream) {
  check_rotation(rotation, x, y);
  const Index samples = x.extent('N'), places = x.extent('L'), channels = x.extent('C'), pairs = rotation.dim / 2,
              group = rotation.heads * rotation.dim;
  const PairTurns turn{rotation.base, rotation.dim, rotation.back};
  std::vector<double> turns(static_cast<std::size_t>(pairs));
  for (Index i = 0; i < pairs; ++i) turns[i] = turn[i];
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    std::vector<A> cosine(static_cast<std::size_t>(pairs)), sine(cosine.size());
    for (Index place = 0; place < places; ++place) {
      for (Index i = 0; i < pairs; ++i) {
        const double angle = static_cast<double>(x.box()[2].lo + place) * turns[i];
        cosine[i] = static_cast<A>(std::cos(angle));
        sine[i] = static_cast<A>(std::sin(angle));
      }
      for (Index sample = 0; sample < samples; ++sample) {
        const Index row = (sample * places + place) * channels;
        T* to = y.as<T>() + row;
        if (x.data() != y.data()) std::copy_n(x.as<T>() + row, channels, to);
        for (T* first = to; first < to + channels; first += group)
          for (Index head = 0; head < rotation.rotated; ++head)
            turn_head(pairs, cosine.data(), sine.data(), first + head * rotation.dim,
                      first + head * rotation.dim + pairs);
      }
    }
  });
}

}  // namespace partita
