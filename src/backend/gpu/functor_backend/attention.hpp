#pragma once

#include "partita/base/dispatch.hpp"
#include "src/backend/common/attention_checks.hpp"
#include "src/backend/gpu/functor_backend/functor_backend.hpp"
#include "src/backend/gpu/functors/attention.hpp"

namespace partita {

/// Heads of dtype T, or of that of its sums.
template <class T>
HeadArray<T> head_array(const Heads& heads, Index dim) {
  const bool is_short = !std::is_same_v<T, Accumulator<T>>;
  return {head_rows(heads, dim), heads.x.data(), is_short && heads.x.dtype() == DType::f32};
}

template <class Launcher>
void FunctorBackend<Launcher>::attention_forward(const HeadShape& shape, const Heads& q, const Heads& k, const Heads& v,
                                                 const Tensor& y, const Tensor& lse, Write write, Stream stream) {
  const AttentionSizes sizes = attention_sizes(shape, q, k, v);
  check_results(sizes, q, y, lse);
  dispatch_float(q.x.dtype(), [&](auto t) {
    using T = decltype(t);
    const auto array = [&](const Heads& heads) { return head_array<T>(heads, sizes.dim); };
    launch_.for_each(sizes.samples * sizes.groups * sizes.queries, sizes.places,
                     AttentionForward<T>{sizes, array(q), array(k), array(v), array(all_heads(sizes, y, sizes.dim)),
                                         head_array<T>(all_heads(sizes, lse, 1), 1), write == Write::add},
                     stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::attention_merge(const Tensor& more_y, const Tensor& more_lse, const Tensor& y,
                                               const Tensor& lse, Stream stream) {
  const MergeSizes sizes = merge_sizes(more_y, more_lse, y, lse);
  const auto merge = [&](auto t) {
    using A = decltype(t);
    const MergedLogSums<A> sums{sizes, device_data<A>(more_lse), device_data<A>(lse)};
    const Index rows = sizes.samples * sizes.places;
    launch_.for_each(rows, sizes.heads * sizes.dim, MergeOutputs<A>{sums, device_data<A>(more_y), device_data<A>(y)},
                     stream);
    launch_.for_each(rows, sizes.heads, MergeLogSums<A>{sums}, stream);
  };
  y.dtype() == DType::f64 ? merge(double{}) : merge(float{});
}

template <class Launcher>
void FunctorBackend<Launcher>::attention_backward(const HeadShape& shape, const Heads& q, const Heads& k,
                                                  const Heads& v, const Tensor& y, const Tensor& dy, const Tensor& lse,
                                                  const Heads& dq, const Heads& dk, const Heads& dv, Write write,
                                                  Stream stream) {
  const AttentionSizes sizes = attention_sizes(shape, q, k, v);
  check_results(sizes, q, y, lse);
  check_results(sizes, q, dy, lse);
  check_gradients(sizes, q, k, dq, dk, dv);
  const bool add = write == Write::add;
  dispatch_float(q.x.dtype(), [&](auto t) {
    using T = decltype(t);
    const auto array = [&](const Heads& heads) { return head_array<T>(heads, sizes.dim); };
    const AttentionGradient<T> from{sizes,
                                    array(q),
                                    array(k),
                                    array(v),
                                    array(all_heads(sizes, y, sizes.dim)),
                                    array(all_heads(sizes, dy, sizes.dim)),
                                    head_array<T>(all_heads(sizes, lse, 1), 1)};
    launch_.for_each(sizes.samples * sizes.groups * sizes.queries, sizes.places, QueryGradient<T>{from, array(dq), add},
                     stream);
    launch_.for_each(sizes.samples * sizes.groups, sizes.keys, KeyGradient<T>{from, array(dk), array(dv), add}, stream);
  });
}

}  // namespace partita
