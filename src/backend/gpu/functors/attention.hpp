#pragma once

#include "partita/base/accumulator.hpp"
#include "src/backend/common/attention_sizes.hpp"
#include "src/backend/gpu/functors/launcher.hpp"
#include "src/backend/gpu/functors/to_element.hpp"

#include <cmath>
#include <limits>

// Attention without memory for pairs of places: each row of a result is computed by one call, which visits the rows of
// the other side in order. A call keeps sums of a few channels at a time, and visits these rows once for each few.

namespace partita {

/// A sample, a group of heads, and a head of its queries.
struct SampleHead {
  Index sample, group, head;
  PARTITA_HOST_DEVICE SampleHead(const AttentionSizes& sizes, Index row)
      : sample(row / (sizes.groups * sizes.queries)),
        group(row / sizes.queries % sizes.groups),
        head(row % sizes.queries) {}
};

/// By which dropout multiplies the weight of a pair.
template <class A>
PARTITA_HOST_DEVICE A kept_share(const AttentionSizes& sizes, const SampleHead& of, Index place, Index key) {
  return static_cast<A>(sizes.dropped.factor(of.sample, of.group * sizes.queries + of.head, place, key));
}

/// Heads in an array of T or, if `wide`, of the type in which T is summed.
template <class T>
struct HeadArray {
  using A = Accumulator<T>;
  HeadRows rows;
  void* data;
  bool wide;
  /// The offset of a head of queries at a place, or of a group's head of keys or values.
  PARTITA_HOST_DEVICE Index query(const SampleHead& of, Index place) const {
    return rows.offset(of.sample, place, of.group, of.head);
  }
  PARTITA_HOST_DEVICE Index key(const SampleHead& of, Index place) const {
    return rows.offset(of.sample, place, of.group);
  }
  PARTITA_HOST_DEVICE A get(Index at) const {
    return wide ? static_cast<const A*>(data)[at] : static_cast<A>(static_cast<const T*>(data)[at]);
  }
  PARTITA_HOST_DEVICE void set(Index at, A value) const {
    if (wide)
      static_cast<A*>(data)[at] = value;
    else
      static_cast<T*>(data)[at] = to_element<T>(value);
  }
  /// Sets an element, or adds to it.
  PARTITA_HOST_DEVICE void put(Index at, A value, bool add) const { set(at, add ? get(at) + value : value); }
};

/// Returns the inner product of two rows of a head.
template <class T>
PARTITA_HOST_DEVICE Accumulator<T> dot(const HeadArray<T>& a, Index at_a, const HeadArray<T>& b, Index at_b) {
  Accumulator<T> sum = 0;
  for (Index c = 0; c < a.rows.dim; ++c) sum += a.get(at_a + c) * b.get(at_b + c);
  return sum;
}

/// Sums of a few neighboring channels of a head.
template <class T>
struct ChannelSums {
  using A = Accumulator<T>;
  static constexpr Index most = 32;
  Index first, count;
  A of[most]{};
  PARTITA_HOST_DEVICE ChannelSums(Index first_channel, Index dim)
      : first(first_channel), count(dim - first_channel < most ? dim - first_channel : most) {}
  template <class F>
  PARTITA_HOST_DEVICE void each(F&& f) {
    for (Index i = 0; i < most; ++i)  // a constant number, so that the sums lie in registers
      if (i < count) f(of[i], first + i);
  }
  /// Adds a multiple of a row.
  PARTITA_HOST_DEVICE void add(A factor, const HeadArray<T>& x, Index at) {
    each([&](A& sum, Index c) { sum += factor * x.get(at + c); });
  }
  PARTITA_HOST_DEVICE void scale(A factor) {
    each([&](A& sum, Index) { sum *= factor; });
  }
};

/// y and lse. A row is a head of queries of one sample.
template <class T>
struct AttentionForward {
  using A = Accumulator<T>;
  AttentionSizes sizes;
  HeadArray<T> q, k, v, y, lse;
  bool add;
  PARTITA_HOST_DEVICE void operator()(Index row, Index place) const {
    const SampleHead of(sizes, row);
    const Index to = lse.query(of, place);
    const A before = add ? lse.get(to) : -std::numeric_limits<A>::infinity();
    A after = before;
    for (Index first = 0; first < sizes.dim; first += ChannelSums<T>::most) after = channels(of, place, first, before);
    lse.set(to, after);
  }

 private:
  /// Computes a few channels of y. Returns lse. What is there counts as one place with the score `before`.
  PARTITA_HOST_DEVICE A channels(const SampleHead& of, Index place, Index first, A before) const {
    const Index query = q.query(of, place), to = y.query(of, place);
    ChannelSums<T> sums(first, sizes.dim);
    if (add) sums.add(1, y, to);
    A largest = before, total = before == -std::numeric_limits<A>::infinity() ? 0 : 1;
    for (Index key = 0; key < sizes.seen(place); ++key) {
      if (!sizes.segments.same(of.sample, place, key)) continue;
      const A score = static_cast<A>(sizes.scale) * dot(q, query, k, k.key(of, key));
      if (score > largest) {
        const A kept = std::exp(largest - score);
        sums.scale(kept);
        total *= kept;
        largest = score;
      }
      const A weight = std::exp(score - largest);
      total += weight;
      sums.add(weight * kept_share<A>(sizes, of, place, key), v, v.key(of, key));
    }
    const A divisor = total == 0 ? 1 : total;  // 0: it sees no place
    sums.each([&](A& sum, Index c) { y.set(to + c, sum / divisor); });
    return largest + std::log(divisor);
  }
};

/// The logs of sums of results that are merged.
template <class A>
struct MergedLogSums {
  static constexpr A nothing = -std::numeric_limits<A>::infinity();
  MergeSizes sizes;
  const A* more;
  A* lse;
  PARTITA_HOST_DEVICE Index to(Index row, Index head) const { return sizes.row_of(row) * sizes.heads + head; }
  PARTITA_HOST_DEVICE A more_at(Index row, Index head) const { return more[row * sizes.heads + head]; }
  PARTITA_HOST_DEVICE A merged(Index row, Index head) const {
    const A before = lse[to(row, head)], added = more_at(row, head), largest = before < added ? added : before;
    if (before == nothing && added == nothing) return nothing;
    return largest + std::log(std::exp(before - largest) + std::exp(added - largest));
  }
};

/// y. A row is a place of a sample, a column one of its channels. The logs of sums are those before merging.
template <class A>
struct MergeOutputs {
  MergedLogSums<A> sums;
  const A* more;
  A* y;
  PARTITA_HOST_DEVICE void operator()(Index row, Index channel) const {
    const Index dim = sums.sizes.dim, head = channel / dim, to = sums.to(row, head);
    const A merged = sums.merged(row, head);
    if (merged == MergedLogSums<A>::nothing) return;  // it sees no place
    A& at = y[to * dim + channel % dim];
    at = std::exp(sums.lse[to] - merged) * at +
         std::exp(sums.more_at(row, head) - merged) * more[row * sums.sizes.heads * dim + channel];
  }
};

/// lse. A row is a place of a sample, a column a head.
template <class A>
struct MergeLogSums {
  MergedLogSums<A> sums;
  PARTITA_HOST_DEVICE void operator()(Index row, Index head) const {
    sums.lse[sums.to(row, head)] = sums.merged(row, head);
  }
};

/// What the gradients are computed from.
template <class T>
struct AttentionGradient {
  using A = Accumulator<T>;
  AttentionSizes sizes;
  HeadArray<T> q, k, v, y, dy, lse;
  /// The weight of a value in y, without what is left out, and the gradient of the product of query and key.
  struct Pair {
    A weight, slope;
  };
  PARTITA_HOST_DEVICE Pair pair(const SampleHead& of, Index place, Index key) const {
    const A scale = static_cast<A>(sizes.scale), score = scale * dot(q, q.query(of, place), k, k.key(of, key));
    const A weight = std::exp(score - lse.get(lse.query(of, place)));
    const A mean = dot(dy, dy.query(of, place), y, y.query(of, place)), share = kept_share<A>(sizes, of, place, key);
    return {weight * share, scale * weight * (share * dot(dy, dy.query(of, place), v, v.key(of, key)) - mean)};
  }
};

/// dq. A row is a head of queries of one sample.
template <class T>
struct QueryGradient {
  AttentionGradient<T> from;
  HeadArray<T> dq;
  bool add;
  PARTITA_HOST_DEVICE void operator()(Index row, Index place) const {
    const SampleHead of(from.sizes, row);
    const Index to = dq.query(of, place);
    for (Index first = 0; first < from.sizes.dim; first += ChannelSums<T>::most) {
      ChannelSums<T> sums(first, from.sizes.dim);
      for (Index key = 0; key < from.sizes.seen(place); ++key)
        if (from.sizes.segments.same(of.sample, place, key))
          sums.add(from.pair(of, place, key).slope, from.k, from.k.key(of, key));
      sums.each([&](Accumulator<T>& sum, Index c) { dq.put(to + c, sum, add); });
    }
  }
};

/// dk and dv. A row is a group of one sample.
template <class T>
struct KeyGradient {
  AttentionGradient<T> from;
  HeadArray<T> dk, dv;
  bool add;
  PARTITA_HOST_DEVICE void operator()(Index row, Index key) const {
    const AttentionSizes& sizes = from.sizes;
    SampleHead of(sizes, row * sizes.queries);
    const Index to_k = dk.key(of, key), to_v = dv.key(of, key);
    for (Index first = 0; first < sizes.dim; first += ChannelSums<T>::most) {
      ChannelSums<T> of_k(first, sizes.dim), of_v(first, sizes.dim);
      for (of.head = 0; of.head < sizes.queries; ++of.head)
        for (Index place = sizes.first_seeing(key); place < sizes.places; ++place) {
          if (!sizes.segments.same(of.sample, place, key)) continue;
          const auto pair = from.pair(of, place, key);
          of_k.add(pair.slope, from.q, from.q.query(of, place));
          of_v.add(pair.weight, from.dy, from.dy.query(of, place));
        }
      of_k.each([&](Accumulator<T>& sum, Index c) { dk.put(to_k + c, sum, add); });
      of_v.each([&](Accumulator<T>& sum, Index c) { dv.put(to_v + c, sum, add); });
    }
  }
};

}  // namespace partita
