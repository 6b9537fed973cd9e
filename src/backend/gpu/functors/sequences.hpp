#pragma once

#include "partita/base/accumulator.hpp"
#include "src/backend/common/attention_sizes.hpp"
#include "src/backend/common/gate.hpp"
#include "src/backend/common/pair_number.hpp"
#include "src/backend/common/pair_turns.hpp"
#include "src/backend/gpu/functors/launcher.hpp"
#include "src/backend/gpu/functors/to_element.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace partita {

/// What the normalization of rows needs of each row: four f64 numbers. With g = scale * dy, the last two are the means
/// of g and of g * xhat.
struct RowMoments {
  static constexpr std::size_t bytes = 4 * sizeof(double);  // of a row
  double *mean, *r, *gradient, *slope;                      // by row

  template <class T>
  PARTITA_HOST_DEVICE double xhat(Index row, T x) const {
    return (static_cast<double>(x) - mean[row]) * r[row];
  }
};
/// Returns the numbers of `rows` rows, one after the other in memory of `bytes` bytes a row.
inline RowMoments row_moments_in(std::span<std::byte> memory, Index rows) {
  auto* first = reinterpret_cast<double*>(memory.data());
  return {first, first + rows, first + 2 * rows, first + 3 * rows};
}

/// d and d^2, with d = x - center. The center is the row's first element, or 0 if the mean counts as 0. The variance
/// would be lost in the rounding of squares of x itself if the mean is large.
template <class T>
struct RowDeviation {
  const T* x;
  Index channels;
  bool centered;
  PARTITA_HOST_DEVICE double center(Index row) const { return centered ? static_cast<double>(x[row * channels]) : 0; }
  PARTITA_HOST_DEVICE Sums<double, 2> operator()(Index row, Index c) const {
    const double d = static_cast<double>(x[row * channels + c]) - center(row);
    return {{d, d * d}};
  }
};

template <class T>
struct KeepRowStatistics {
  RowMoments to;
  RowDeviation<T> of;
  double epsilon;
  PARTITA_HOST_DEVICE void operator()(Index row, const Sums<double, 2>& sums) const {
    const auto count = static_cast<double>(of.channels);
    const double d = of.centered ? sums.of[0] / count : 0, variance = sums.of[1] / count - d * d;
    to.mean[row] = of.center(row) + d;
    to.r[row] = 1 / std::sqrt((variance < 0 ? 0 : variance) + epsilon);  // rounding may leave less than 0; NaN stays
  }
};

/// scale[c] * xhat + shift[c]
template <class T>
struct NormalizeRows {
  Inputs<T> in;  // x
  T* out;
  RowMoments of;
  const T *scale, *shift;  // shift may be null
  PARTITA_HOST_DEVICE auto column(Index /*part*/, Index c) const {
    const double offset = shift == nullptr ? 0 : static_cast<double>(shift[c]);
    return [of = of, factor = static_cast<double>(scale[c]), offset](Index row, T x) {
      return to_element<T>(static_cast<Accumulator<T>>(factor * of.xhat(row, x) + offset));
    };
  }
};

/// g and g * xhat, with g = scale * dy
template <class T>
struct RowGradient {
  const T *x, *dy, *scale;
  RowMoments of;
  Index channels;
  PARTITA_HOST_DEVICE Sums<double, 2> operator()(Index row, Index c) const {
    const Index at = row * channels + c;
    const double g = static_cast<double>(scale[c]) * static_cast<double>(dy[at]);
    return {{g, g * of.xhat(row, x[at])}};
  }
};

struct KeepRowGradient {
  RowMoments to;
  Index channels;
  bool centered;
  PARTITA_HOST_DEVICE void operator()(Index row, const Sums<double, 2>& sums) const {
    const auto count = static_cast<double>(channels);
    to.gradient[row] = centered ? sums.of[0] / count : 0;
    to.slope[row] = sums.of[1] / count;
  }
};

/// dx = r * (g - mean of g - xhat * mean of g * xhat), and `added` more where `adds`
template <class T, bool adds>
struct NormalizeRowsBackward {
  std::conditional_t<adds, Inputs<T, T, T>, Inputs<T, T>> in;  // x, dy, added
  T* out;
  RowMoments of;
  const T* scale;
  PARTITA_HOST_DEVICE auto column(Index /*part*/, Index c) const {
    const auto value = [of = of, factor = static_cast<double>(scale[c])](Index row, T x, T dy) {
      const double g = factor * static_cast<double>(dy);
      return of.r[row] * (g - of.gradient[row] - of.xhat(row, x) * of.slope[row]);
    };
    if constexpr (adds)
      return [value](Index row, T x, T dy, T added) {
        return to_element<T>(static_cast<Accumulator<T>>(static_cast<double>(added) + value(row, x, dy)));
      };
    else
      return [value](Index row, T x, T dy) { return to_element<T>(static_cast<Accumulator<T>>(value(row, x, dy))); };
  }
};

/// dy * xhat and dy
template <class T>
struct RowWeightGradients {
  Inputs<T, T> in;  // x, dy
  RowMoments of;
  PARTITA_HOST_DEVICE auto column(Index /*part*/, Index /*c*/) const {
    return [of = of](Index row, T x, T dy) {
      const auto gradient = static_cast<double>(dy);
      return Sums<double, 2>{{gradient * of.xhat(row, x), gradient}};
    };
  }
};

/// dscale[c] and dshift[c] = sum, or += sum
template <class T>
struct KeepRowWeightGradients {
  T *dscale, *dshift;  // dshift may be null
  bool adds;
  PARTITA_HOST_DEVICE void operator()(Index /*part*/, Index c, const Sums<double, 2>& sums) const {
    keep(dscale, c, sums.of[0]);
    if (dshift != nullptr) keep(dshift, c, sums.of[1]);
  }

 private:
  PARTITA_HOST_DEVICE void keep(T* to, Index c, double sum) const {
    to[c] = to_element<T>((adds ? static_cast<double>(to[c]) : 0.0) + sum);
  }
};

/// The rows of a table, or of one for each place, that its box holds.
template <class T>
struct HeldRows {
  T* data;
  Index first, count, channels, tables;
  PARTITA_HOST_DEVICE bool holds(Index token) const { return token >= first && token < first + count; }
  /// The row of y says which table.
  PARTITA_HOST_DEVICE T& at(Index token, Index row, Index c) const {
    return data[((token - first) * tables + row % tables) * channels + c];
  }
};

/// The sum of the entries of a row's tokens; 0 for those that the box of the table lacks, NaN if the vocabulary does.
template <class T>
struct Embed {
  using A = Accumulator<T>;
  Inputs<> in;
  T* out;
  const std::int32_t* tokens;
  HeldRows<T> table;
  Index vocabulary, bag;
  A scale;
  PARTITA_HOST_DEVICE auto column(Index /*part*/, Index c) const {
    return [of = *this, c](Index row) {
      A sum = 0;
      for (Index i = row * of.bag; i < (row + 1) * of.bag; ++i) {
        const Index token = of.tokens[i];
        if (token < 0 || token >= of.vocabulary) return to_element<T>(std::numeric_limits<A>::quiet_NaN());
        if (of.table.holds(token)) sum += static_cast<A>(of.table.at(token, row, c));
      }
      return to_element<T>(of.scale * sum);
    };
  }
};

/// Some tokens: `count` from that of number `begin` on. A bag of them belongs to each row of y.
struct TokenPart {
  const std::int32_t* tokens;
  Index begin, count, bag, tables;
  PARTITA_HOST_DEVICE std::int32_t token(Index i) const { return tokens[begin + i]; }
  PARTITA_HOST_DEVICE Index row(Index i) const { return (begin + i) / bag; }
  /// True if both name the same row of the same table.
  PARTITA_HOST_DEVICE bool same(Index i, Index j) const {
    return token(i) == token(j) && (tables == 1 || row(i) % tables == row(j) % tables);
  }
};

/// The tokens that name one row of a table, as a list in their order.
struct TokenLists {
  static constexpr std::size_t bytes = 2 * sizeof(std::int32_t);  // of a token
  std::int32_t *next, *first;  // by token: the next one of its list, or the number of tokens; 1 if none is before it
};
/// Returns the lists of `count` tokens in memory of `bytes` bytes a token.
inline TokenLists token_lists_in(std::span<std::byte> memory, Index count) {
  auto* first = reinterpret_cast<std::int32_t*>(memory.data());
  return {first, first + count};
}

/// Finds a token's neighbors in its list. The tokens that the table's box lacks have no list.
template <class T>
struct LinkTokens {
  TokenPart part;
  HeldRows<T> table;
  TokenLists to;
  PARTITA_HOST_DEVICE void operator()(Index /*one*/, Index i) const {
    to.first[i] = 0;
    if (!table.holds(part.token(i))) return;
    Index before = i - 1, next = i + 1;
    while (before >= 0 && !part.same(before, i)) --before;
    while (next < part.count && !part.same(next, i)) ++next;
    to.first[i] = before < 0 ? 1 : 0;
    to.next[i] = static_cast<std::int32_t>(next);
  }
};

/// Adds the rows of dy of a list to the table, one after the other. The first token of the list does it for all.
template <class T>
struct AddTokenRows {
  using A = Accumulator<T>;
  TokenPart part;
  const T* dy;
  HeldRows<T> table;
  TokenLists of;
  A scale;
  PARTITA_HOST_DEVICE void operator()(Index first, Index c) const {
    if (of.first[first] == 0) return;
    T& to = table.at(part.token(first), part.row(first), c);
    auto sum = static_cast<A>(to);
    for (Index i = first; i < part.count; i = of.next[i])
      sum += scale * static_cast<A>(dy[part.row(i) * table.channels + c]);
    to = to_element<T>(sum);
  }
};

/// z_i of an interaction: the vector of `dense`, or a place of `vectors`.
template <class T>
struct InteractingVectors {
  T *vectors, *dense;
  Index channels, places;
  PARTITA_HOST_DEVICE T& at(Index n, Index i, Index c) const {
    return i == 0 ? dense[n * channels + c] : vectors[(n * places + i - 1) * channels + c];
  }
  PARTITA_HOST_DEVICE Index outputs() const { return channels + places * (places + 1) / 2; }
};

/// The channels of `dense`, and the products of all pairs.
template <class T>
struct Interact {
  InteractingVectors<T> z;
  T* y;
  PARTITA_HOST_DEVICE void operator()(Index n, Index k) const {
    T& to = y[n * z.outputs() + k];
    if (k < z.channels) {
      to = z.at(n, 0, k);
      return;
    }
    Index i = 1, j = k - z.channels;
    while (j >= i) j -= i++;
    Accumulator<T> sum = 0;
    for (Index c = 0; c < z.channels; ++c)
      sum += static_cast<Accumulator<T>>(z.at(n, i, c)) * static_cast<Accumulator<T>>(z.at(n, j, c));
    to = to_element<T>(sum);
  }
};

/// The gradient of each vector.
template <class T>
struct InteractBackward {
  InteractingVectors<T> z, dz;
  const T* dy;
  PARTITA_HOST_DEVICE void operator()(Index vector, Index c) const {
    using A = Accumulator<T>;
    const Index n = vector / (z.places + 1), i = vector % (z.places + 1);
    const T* from = dy + n * z.outputs();
    A sum = i == 0 ? static_cast<A>(from[c]) : A(0);
    for (Index j = 0; j <= z.places; ++j)
      if (j != i) sum += static_cast<A>(from[z.channels + pair_number(i, j)]) * static_cast<A>(z.at(n, j, c));
    dz.at(n, i, c) = to_element<T>(sum);
  }
};

/// Neighboring channels a and b, of which f(a) * b is computed.
template <class T>
struct GatedPair {
  T a, b;
};

template <class T, class F>
struct GateForward {
  using A = Accumulator<T>;
  Inputs<GatedPair<T>> in;  // x
  T* out;
  Gate<F, A> gate;
  PARTITA_HOST_DEVICE auto column(Index /*part*/, Index /*i*/) const {
    return [gate = gate](Index /*row*/, const GatedPair<T>& x) {
      return to_element<T>(gate.value(static_cast<A>(x.a), static_cast<A>(x.b)));
    };
  }
};

template <class T, class F>
struct GateBackward {
  using A = Accumulator<T>;
  Inputs<GatedPair<T>, T> in;  // x, dy
  GatedPair<T>* out;
  Gate<F, A> gate;
  PARTITA_HOST_DEVICE auto column(Index /*part*/, Index /*i*/) const {
    return [gate = gate](Index /*row*/, const GatedPair<T>& x, T dy) {
      const auto dx = gate.gradient(static_cast<A>(x.a), static_cast<A>(x.b), static_cast<A>(dy));
      return GatedPair<T>{to_element<T>(dx[0]), to_element<T>(dx[1])};
    };
  }
};

/// The rows of scores of whole attention: each place has `heads` rows, with one score for each place from 0 on. The
/// first row here has the number `first`.
struct ScoreRows {
  Index heads, keys, places, first;
  bool causal;
  SegmentIds segments;
  PARTITA_HOST_DEVICE bool sees(Index row, Index c) const {
    const Index of_all = (first + row) / heads, sample = of_all / places, place = of_all % places;
    return !(causal && c > place) && segments.same(sample, place, c);
  }
};

/// What the softmax of rows of scores needs of each row: two f64 numbers.
struct RowTotals {
  static constexpr std::size_t bytes = 2 * sizeof(double);  // of a row
  double *largest, *sum;                                    // by row
};
/// Returns the numbers of `rows` rows, one after the other in memory of `bytes` bytes a row.
inline RowTotals row_totals_in(std::span<std::byte> memory, Index rows) {
  auto* first = reinterpret_cast<double*>(memory.data());
  return {first, first + rows};
}

template <class T>
struct SeenScore {
  const T* x;
  ScoreRows rows;
  PARTITA_HOST_DEVICE double operator()(Index row, Index c) const {
    return rows.sees(row, c) ? static_cast<double>(x[row * rows.keys + c]) : -std::numeric_limits<double>::infinity();
  }
};

struct KeepLargestScore {
  RowTotals to;
  PARTITA_HOST_DEVICE void operator()(Index row, double largest) const { to.largest[row] = largest; }
};

template <class T>
struct SeenExponential {
  SeenScore<T> score;
  RowTotals of;
  PARTITA_HOST_DEVICE Sums<double, 1> operator()(Index row, Index c) const {
    return {{std::exp(score(row, c) - of.largest[row])}};
  }
};

struct KeepRowTotal {
  RowTotals to;
  PARTITA_HOST_DEVICE void operator()(Index row, const Sums<double, 1>& sums) const { to.sum[row] = sums.of[0]; }
};

/// x = exp(x - largest) / sum
template <class T>
struct SoftmaxScores {
  SeenExponential<T> exponential;
  T* out;
  PARTITA_HOST_DEVICE void operator()(Index row, Index c) const {
    const double weight = exponential(row, c).of[0] / exponential.of.sum[row];
    out[row * exponential.score.rows.keys + c] = to_element<T>(static_cast<Accumulator<T>>(weight));
  }
};

/// dropped * dx
template <class T>
struct WeightedSlope {
  const T *dropped, *dx;
  Index keys;
  PARTITA_HOST_DEVICE Sums<double, 1> operator()(Index row, Index c) const {
    const Index at = row * keys + c;
    return {{static_cast<double>(dropped[at]) * static_cast<double>(dx[at])}};
  }
};

/// dx = scale * (dropped * dx - y * the row's sum of dropped * dx)
template <class T>
struct SoftmaxScoresBackward {
  const T *y, *dropped;
  T* dx;
  RowTotals of;
  Index keys;
  double scale;
  PARTITA_HOST_DEVICE void operator()(Index row, Index c) const {
    const Index at = row * keys + c;
    const double slope = static_cast<double>(dropped[at]) * static_cast<double>(dx[at]);
    dx[at] = to_element<T>(static_cast<Accumulator<T>>(scale * (slope - static_cast<double>(y[at]) * of.sum[row])));
  }
};

/// Turns or copies pair i of every head at one place, so that cosine and sine are computed once for all samples.
template <class T>
struct Rotate {
  const T* x;
  T* y;
  PairTurns turns;
  Index heads, rotated;                    // of a group
  Index samples, places, channels, first;  // `first` is the first place's coordinate
  PARTITA_HOST_DEVICE void operator()(Index place, Index i) const {
    using A = Accumulator<T>;
    const double angle = static_cast<double>(first + place) * turns[i];
    const A cosine = static_cast<A>(std::cos(angle)), sine = static_cast<A>(std::sin(angle));
    for (Index sample = 0; sample < samples; ++sample)
      for (Index head = 0; head < channels / turns.dim; ++head) {
        const Index low = (sample * places + place) * channels + head * turns.dim + i, high = low + turns.dim / 2;
        const A a = static_cast<A>(x[low]), b = static_cast<A>(x[high]);
        const bool is_turned = head % heads < rotated;
        y[low] = to_element<T>(is_turned ? a * cosine - b * sine : a);
        y[high] = to_element<T>(is_turned ? a * sine + b * cosine : b);
      }
  }
};

}  // namespace partita
