#pragma once

#include "partita/backend/sequences.hpp"
#include "partita/base/error.hpp"
#include "src/backend/common/attention_sizes.hpp"

#include <algorithm>

namespace partita {

// What every backend checks of the tensors of attention.

inline HeadRows head_rows(const Heads& heads, Index dim) {
  return {heads.x.box().extent(2), heads.x.box().extent(1), heads.first, heads.step, dim};
}

/// Requires `count` heads of `dim` channels in each group, at the places of `like`.
inline void check_heads(const AttentionSizes& sizes, const Heads& heads, Index count, Index dim, const Tensor& like) {
  const Box& box = heads.x.box();
  const Interval places = like.box()[2];
  require(box.dims() == 3 && box.extent(0) == sizes.samples && box.extent(2) == places.extent() &&
              (places.empty() || box[2].lo == places.lo),
          "heads must be those of the same samples and places");
  require(box.extent(1) == sizes.groups * heads.step && heads.first + count * dim <= heads.step,
          "the channels must be those of the same groups, with all their heads");
}

/// Returns the segments of the places in the boxes of queries and keys.
inline SegmentIds segment_ids(const Tensor& segments, const Box& q, const Box& k) {
  if (!segments) return {};
  const Box& box = segments.box();
  const auto has = [&](Interval places) {
    return places.empty() || (box[2].lo <= places.lo && places.hi <= box[2].hi);
  };
  require(segments.dtype() == DType::i32 && box.dims() == 3 && box.extent(0) == q.extent(0) && box.extent(1) == 1 &&
              has(q[2]) && has(k[2]),
          "each place of queries and keys must have the number of its segment");
  return {reinterpret_cast<const std::int32_t*>(segments.data()), box.extent(2), q[2].lo - box[2].lo,
          k[2].lo - box[2].lo};
}

/// Returns the weights that are left out between queries and keys.
inline DroppedWeights dropped_weights(const HeadShape& shape, const Heads& q, const Box& k) {
  const WeightDropout& dropout = shape.dropout;
  if (dropout.rate == 0) return {};
  const Box& box = q.x.box();
  require(dropout.rate > 0 && dropout.rate < 1, "the rate of dropout must be in [0, 1)");
  require(dropout.step && dropout.step.dtype() == DType::f64, "the number of the step must be in f64");
  const Index first_head = box[1].lo / q.step * shape.queries;
  require(first_head + box.extent(1) / q.step * shape.queries <= dropout.heads &&
              std::max(box[2].hi, k[2].hi) <= dropout.places,
          "queries and keys must be among all heads and places");
  return {.rate = dropout.rate,
          .random = dropout.random,
          .step = reinterpret_cast<const double*>(dropout.step.data()),
          .heads = dropout.heads,
          .places = dropout.places,
          .first_sample = dropout.first_sample + box[0].lo,
          .first_head = first_head,
          .first_query = box[2].lo,
          .first_key = k[2].lo};
}

/// Returns the sizes of a call of attention.
inline AttentionSizes attention_sizes(const HeadShape& shape, const Heads& q, const Heads& k, const Heads& v) {
  const Box &of_q = q.x.box(), &of_k = k.x.box();
  require(of_q.dims() == 3 && of_k.dims() == 3 && q.step > 0, "attention is computed of sequences N C L");
  const AttentionSizes sizes{.samples = of_q.extent(0),
                             .groups = of_q.extent(1) / q.step,
                             .queries = shape.queries,
                             .dim = shape.dim,
                             .places = of_q.extent(2),
                             .keys = of_k.extent(2),
                             .ahead = of_q[2].lo - of_k[2].lo,
                             .causal = shape.causal,
                             .scale = shape.scale,
                             .segments = segment_ids(shape.segments, of_q, of_k),
                             .dropped = dropped_weights(shape, q, of_k)};
  check_heads(sizes, q, shape.queries, shape.dim, q.x);
  check_heads(sizes, k, 1, shape.dim, k.x);
  check_heads(sizes, v, 1, shape.dim, k.x);
  require(k.x.dtype() == q.x.dtype() && v.x.dtype() == q.x.dtype(), "queries, keys and values must have one dtype");
  return sizes;
}

/// The dtype of the sums of attention, in which its results may be kept.
inline DType sums_dtype(const Heads& q) { return q.x.dtype() == DType::f64 ? DType::f64 : DType::f32; }

/// Requires that a tensor has the dtype of the queries or of sums.
inline void check_result(const Tensor& result, const Heads& q) {
  require(result.dtype() == q.x.dtype() || result.dtype() == sums_dtype(q),
          "results must have the dtype of the queries or of their sums");
}

/// A tensor that has nothing but heads of queries: y, its gradient or, with dim 1, lse.
inline Heads all_heads(const AttentionSizes& sizes, const Tensor& x, Index dim) { return {x, 0, sizes.queries * dim}; }

/// Checks y, its gradient and lse.
inline void check_results(const AttentionSizes& sizes, const Heads& q, const Tensor& y, const Tensor& lse) {
  check_heads(sizes, all_heads(sizes, y, sizes.dim), sizes.queries, sizes.dim, q.x);
  check_heads(sizes, all_heads(sizes, lse, 1), sizes.queries, 1, q.x);
  check_result(y, q);
  require(lse.dtype() == sums_dtype(q), "lse must have the dtype of sums");
}

/// Checks the gradients of queries, keys and values.
inline void check_gradients(const AttentionSizes& sizes, const Heads& q, const Heads& k, const Heads& dq,
                            const Heads& dk, const Heads& dv) {
  check_heads(sizes, dq, sizes.queries, sizes.dim, q.x);
  check_heads(sizes, dk, 1, sizes.dim, k.x);
  check_heads(sizes, dv, 1, sizes.dim, k.x);
  for (const Heads* each : {&dq, &dk, &dv}) check_result(each->x, q);
}

/// Returns the sizes of a call of attention_merge.
inline MergeSizes merge_sizes(const Tensor& more_y, const Tensor& more_lse, const Tensor& y, const Tensor& lse) {
  const Box &box = y.box(), &more = more_y.box();
  for (const Tensor* each : {&more_y, &more_lse, &y, &lse})
    require(each->box().dims() == 3 && each->dtype() == y.dtype(), "results must be sequences N C L of one dtype");
  const Index heads = lse.box().extent(1);
  require((y.dtype() == DType::f64 || y.dtype() == DType::f32) && heads > 0 && box.extent(1) % heads == 0,
          "results must have the dtype of sums, and lse a number for each head of y");
  require(lse.box()[2] == box[2] && more_lse.box()[2] == more[2] && more.extent(1) == box.extent(1) &&
              more_lse.box().extent(1) == heads &&
              (more[2].empty() || box[2] == Interval{std::min(box[2].lo, more[2].lo), std::max(box[2].hi, more[2].hi)}),
          "more results must have the heads of the others, and places of theirs");
  for (const Tensor* each : {&more_y, &more_lse, &lse})
    require(each->box().extent(0) == box.extent(0), "results must be those of the same samples");
  return {box.extent(0), more.extent(2), heads, box.extent(1) / heads, box.extent(2), more[2].lo - box[2].lo};
}

}  // namespace partita
