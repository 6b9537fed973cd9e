#include "partita/base/dispatch.hpp"
#include "src/backend/common/attention_checks.hpp"
#include "src/backend/common/scratch.hpp"
#include "src/backend/cpu/reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

namespace partita {

namespace {

// Blocks of queries meet blocks of keys. The weights of two blocks stay in the second-level cache, in a backward with
// the gradients of their scores.
constexpr Index query_block = 128, key_block = 512;

/// Weights below exp(-64) of the largest one become this. That changes no sum, and smaller numbers could be denormal,
/// with which some processors are slow.
constexpr int least_exponent = -64;

/// Calls f(begin, count) for ranges of [0, all) that are no longer than `block`.
template <class F>
void for_ranges(Index all, Index block, F&& f) {
  for (Index begin = 0; begin < all; begin += block) f(begin, std::min(block, all - begin));
}

/// Some rows and columns of dense rows.
template <class A>
struct RowBlock {
  A* data;
  Index rows, columns, step;
};

/// Dense rows in the type of sums.
template <class A>
class DenseRows {
 public:
  using Array = Eigen::Map<Eigen::Array<A, Eigen::Dynamic, 1>>;
  DenseRows(Index rows, Index columns) : columns_(columns), data_(rows * columns) {}
  A* row(Index r) const { return data_.data() + r * columns_; }
  /// The first elements of a row.
  Array array(Index r, Index count) const { return {row(r), count}; }
  Array array(Index r) const { return array(r, columns_); }
  /// Element r of a single column.
  A& operator[](Index r) const { return data_[r]; }
  RowBlock<A> part(Index first, Index rows, Index columns) const { return {row(first), rows, columns, columns_}; }
  RowBlock<A> part(Index first, Index rows) const { return part(first, rows, columns_); }

 private:
  Index columns_;
  Scratch<A> data_;
};

/// The rows of one head of one sample in a tensor.
class TensorRows {
 public:
  TensorRows(const Heads& heads, Index dim, Index sample, Index group, Index head = 0)
      : x_(heads.x),
        dim_(dim),
        first_(head_rows(heads, dim).offset(sample, 0, group, head)),
        step_(heads.x.box().extent(1)) {}

  /// Copies `count` rows, from row `begin` on, to the first ones of `to`.
  template <class A>
  void read(Index begin, Index count, const DenseRows<A>& to) const {
    for_elements<A>(begin, count, to, [](auto& mine, A& dense) { dense = static_cast<A>(mine); });
  }
  template <class A>
  void write(Index begin, Index count, const DenseRows<A>& from) const {
    for_elements<A>(begin, count, from, [](auto& mine, const A& dense) {
      mine = static_cast<std::remove_reference_t<decltype(mine)>>(dense);
    });
  }
  /// Reads the rows to which sums will be added, or sets `to` to zero if the sums will replace them.
  template <class A>
  void start(Write write, Index begin, Index count, const DenseRows<A>& to) const {
    if (write == Write::add) return read(begin, count, to);
    std::fill_n(to.row(0), count * dim_, A(0));
  }

 private:
  template <class A, class F>
  void for_elements(Index begin, Index count, const DenseRows<A>& dense, F&& f) const {
    dispatch_float(x_.dtype(), [&](auto t) {
      auto* mine = x_.as<decltype(t)>() + first_ + begin * step_;
      for (Index r = 0; r < count; ++r)
        for (Index c = 0; c < dim_; ++c) f(mine[r * step_ + c], dense.row(r)[c]);
    });
  }

  const Tensor& x_;
  Index dim_, first_, step_;
};

/// The attention of one group of heads of one sample, with sums of type A. Only its keys and values, and in a backward
/// their gradients, are held for all places.
template <class A>
class GroupAttention {
 public:
  GroupAttention(const AttentionSizes& sizes, Backend& products, const Heads& k, const Heads& v, Index sample,
                 Index group)
      : sizes_(sizes),
        products_(products),
        sample_(sample),
        group_(group),
        block_(std::min(query_block, sizes.places)),
        keys_(sizes.keys, sizes.dim),
        values_(sizes.keys, sizes.dim),
        queries_(block_, sizes.dim),
        sums_(block_, sizes.dim),
        log_sums_(block_, 1),
        weights_(scores()),
        drawn_(sizes.dropped.rate > 0 ? key_block : 0),
        factors_(sizes.dropped.rate > 0 ? key_block : 0) {
    rows_of(k, sizes_.dim).read(0, sizes_.keys, keys_);
    rows_of(v, sizes_.dim).read(0, sizes_.keys, values_);
  }

  void forward(const Heads& q, const Heads& y, const Heads& lse, Write write) const {
    const DenseRows<A>& largest = log_sums_;
    const DenseRows<A> total(block_, 1);
    for_queries([&](Index head, Index begin, Index count) {
      rows_of(q, sizes_.dim, head).read(begin, count, queries_);
      // What is there counts as one place with the score lse.
      rows_of(y, sizes_.dim, head).start(write, begin, count, sums_);
      std::fill_n(largest.row(0), count, nothing);
      if (write == Write::add) rows_of(lse, 1, head).read(begin, count, largest);
      for (Index r = 0; r < count; ++r) total[r] = largest[r] == nothing ? A(0) : A(1);
      for_keys(begin, count, [&](Index first, Index keys) {
        multiply_scores(begin, count, first, keys);
        for (Index r = 0; r < count; ++r) {
          const Index seen_keys = seen(begin + r, first, keys);
          exponentiate(r, seen_keys, keys, largest[r], total[r]);
          drop(draw(head, begin + r, first, seen_keys), weights_.array(r, seen_keys));
        }
        multiply(false, false, 1, weights_.part(0, count, keys), values_.part(first, keys), 1, sums_.part(0, count));
      });
      for (Index r = 0; r < count; ++r) {
        if (total[r] == 0) continue;  // it sees no place
        sums_.array(r) /= total[r];
        largest[r] += std::log(total[r]);
      }
      rows_of(y, sizes_.dim, head).write(begin, count, sums_);
      rows_of(lse, 1, head).write(begin, count, largest);
    });
  }

  void backward(const Heads& q, const Heads& y, const Heads& dy, const Heads& lse, const Heads& dq, const Heads& dk,
                const Heads& dv, Write write) const {
    const DenseRows<A> to_k(sizes_.keys, sizes_.dim), to_v(sizes_.keys, sizes_.dim), gradients(block_, sizes_.dim),
        outputs(block_, sizes_.dim), mean(block_, 1), of_weights = scores();
    rows_of(dk, sizes_.dim).start(write, 0, sizes_.keys, to_k);
    rows_of(dv, sizes_.dim).start(write, 0, sizes_.keys, to_v);
    for_queries([&](Index head, Index begin, Index count) {
      rows_of(q, sizes_.dim, head).read(begin, count, queries_);
      rows_of(y, sizes_.dim, head).read(begin, count, outputs);
      rows_of(dy, sizes_.dim, head).read(begin, count, gradients);
      rows_of(lse, 1, head).read(begin, count, log_sums_);
      rows_of(dq, sizes_.dim, head).start(write, begin, count, sums_);
      for (Index r = 0; r < count; ++r) mean[r] = (outputs.array(r) * gradients.array(r)).sum();
      const RowBlock<A> gradient = gradients.part(0, count);
      for_keys(begin, count, [&](Index first, Index keys) {
        const RowBlock<A> weights = weights_.part(0, count, keys), slopes = of_weights.part(0, count, keys);
        multiply_scores(begin, count, first, keys);
        multiply(false, true, 1, gradient, values_.part(first, keys), 0, slopes);
        for (Index r = 0; r < count; ++r) {
          const Index seen_keys = seen(begin + r, first, keys);
          differentiate(r, seen_keys, keys, mean[r], draw(head, begin + r, first, seen_keys), of_weights);
        }
        multiply(true, false, 1, weights, gradient, 1, to_v.part(first, keys));
        multiply(true, false, 1, slopes, queries_.part(0, count), 1, to_k.part(first, keys));
        multiply(false, false, 1, slopes, keys_.part(first, keys), 1, sums_.part(0, count));
      });
      rows_of(dq, sizes_.dim, head).write(begin, count, sums_);
    });
    rows_of(dk, sizes_.dim).write(0, sizes_.keys, to_k);
    rows_of(dv, sizes_.dim).write(0, sizes_.keys, to_v);
  }

 private:
  using Array = typename DenseRows<A>::Array;
  static constexpr A nothing = -std::numeric_limits<A>::infinity();  // lse of a place that sees no other

  TensorRows rows_of(const Heads& heads, Index dim, Index head = 0) const {
    return {heads, dim, sample_, group_, head};
  }
  /// Returns room for the scores of two blocks. Rows begin where vector registers do, wherever they are read from.
  DenseRows<A> scores() const {
    constexpr Index aligned = 64 / sizeof(A);
    return {block_, std::min(key_block, (sizes_.keys + aligned - 1) / aligned * aligned)};
  }
  template <class F>
  void for_queries(F&& f) const {
    for (Index head = 0; head < sizes_.queries; ++head)
      for_ranges(sizes_.places, block_, [&](Index begin, Index count) { f(head, begin, count); });
  }
  /// Calls f for the blocks of those keys that the last of some queries sees, unless no key can be of their segments.
  template <class F>
  void for_keys(Index begin, Index count, F&& f) const {
    for_ranges(sizes_.seen(begin + count - 1), key_block, [&](Index first, Index keys) {
      if (may_share_segments(begin, count, first, keys)) f(first, keys);
    });
  }
  bool may_share_segments(Index begin, Index count, Index first, Index keys) const {
    if (!segmented()) return true;
    const std::int32_t *of_queries = sizes_.segments.of_query(sample_, begin),
                       *of_keys = sizes_.segments.of_key(sample_, first);
    const auto [least, most] = std::minmax_element(of_queries, of_queries + count);
    const auto [least_key, most_key] = std::minmax_element(of_keys, of_keys + keys);
    return *least <= *most_key && *least_key <= *most;
  }
  /// Draws which weights of a query for some keys are left out. Returns by what they are multiplied, or null for 1.
  const A* draw(Index head, Index query, Index first, Index keys) const {
    const DroppedWeights& dropped = sizes_.dropped;
    if (dropped.rate == 0) return nullptr;
    dropped.numbers().uniform(dropped.index(sample_, group_ * sizes_.queries + head, query, first),
                              {drawn_.data(), static_cast<std::size_t>(keys)});
    const A kept = static_cast<A>(1 / (1 - dropped.rate));
    for (Index c = 0; c < keys; ++c) factors_[c] = drawn_[c] < dropped.rate ? A(0) : kept;
    return factors_.data();
  }
  static void drop(const A* factors, Array row) {
    if (factors != nullptr) row *= Eigen::Map<const Eigen::Array<A, Eigen::Dynamic, 1>>(factors, row.size());
  }
  bool segmented() const { return sizes_.segments.ids != nullptr; }
  /// Returns how many keys of a block a query sees.
  Index seen(Index query, Index first, Index keys) const {
    return std::clamp<Index>(sizes_.seen(query) - first, 0, keys);
  }

  /// C = alpha * op(A) op(B) + beta * C
  void multiply(bool transpose_a, bool transpose_b, double alpha, const RowBlock<A>& a, const RowBlock<A>& b,
                double beta, const RowBlock<A>& c) const {
    products_.gemm(std::is_same_v<A, double> ? DType::f64 : DType::f32, transpose_a, transpose_b, c.rows, c.columns,
                   transpose_a ? a.rows : a.columns, alpha, a.data, a.step, b.data, b.step, beta, c.data, c.step, {});
  }
  /// Computes the scores of two blocks. Those of places of two segments are `nothing`.
  void multiply_scores(Index begin, Index count, Index first, Index keys) const {
    multiply(false, true, sizes_.scale, queries_.part(0, count), keys_.part(first, keys), 0,
             weights_.part(0, count, keys));
    for (Index r = 0; r < count && segmented(); ++r)
      for (Index c = 0; c < keys; ++c)
        if (!sizes_.segments.same(sample_, begin + r, first + c)) weights_.row(r)[c] = nothing;
  }
  /// Turns the scores that a query sees into weights, and the others into zeros.
  void weigh(Index r, Index seen, Index keys, A log_sum) const {
    auto row = weights_.array(r, seen);
    const auto weights = (row - log_sum).max(A(least_exponent)).exp();
    if (segmented())
      row = (row == nothing).select(A(0), weights);
    else
      row = weights;
    std::fill_n(weights_.row(r) + seen, keys - seen, A(0));
  }
  /// Turns a query's scores into weights, relative to the largest one so far. If that is here, scales the sums so far.
  void exponentiate(Index r, Index seen, Index keys, A& largest, A& total) const {
    const A before = largest;
    if (seen > 0) largest = std::max(before, weights_.array(r, seen).maxCoeff());
    weigh(r, seen, keys, largest);
    if (largest != before) {
      const A kept = std::exp(before - largest);
      total *= kept;
      sums_.array(r) *= kept;
    }
    total += weights_.array(r, seen).sum();
  }
  /// Turns a query's scores into weights, and the gradients of these into those of the scores.
  void differentiate(Index r, Index seen, Index keys, A mean, const A* factors, const DenseRows<A>& of_weights) const {
    weigh(r, seen, keys, log_sums_[r]);
    const Array weights = weights_.array(r, seen);
    Array row = of_weights.array(r, seen);
    drop(factors, row);
    row = static_cast<A>(sizes_.scale) * weights * (row - mean);
    drop(factors, weights);
    std::fill_n(of_weights.row(r) + seen, keys - seen, A(0));
  }

  const AttentionSizes& sizes_;
  Backend& products_;
  Index sample_, group_;
  Index block_;  // places of queries at once
  DenseRows<A> keys_, values_, queries_;
  DenseRows<A> sums_;      // y of a block of queries, or their gradient
  DenseRows<A> log_sums_;  // of a block of queries
  DenseRows<A> weights_;   // of a block of keys, for each of a block of queries
  Scratch<double> drawn_;  // for dropout of a query's weights
  Scratch<A> factors_;
};

/// Calls run(attention) for group i of all groups of all samples.
template <class F>
void with_group(const AttentionSizes& sizes, Backend& products, Index i, const Heads& k, const Heads& v, F&& run) {
  const Index sample = i / sizes.groups, group = i % sizes.groups;
  if (k.x.dtype() == DType::f64)
    run(GroupAttention<double>(sizes, products, k, v, sample, group));
  else
    run(GroupAttention<float>(sizes, products, k, v, sample, group));
}

}  // namespace

void ReferenceBackend::attention_forward(const HeadShape& shape, const Heads& q, const Heads& k, const Heads& v,
                                         const Tensor& y, const Tensor& lse, Write write, Stream) {
  const AttentionSizes sizes = attention_sizes(shape, q, k, v);
  check_results(sizes, q, y, lse);
  const Heads of_y = all_heads(sizes, y, sizes.dim), of_lse = all_heads(sizes, lse, 1);
  in_parallel(sizes.samples * sizes.groups, [&](Backend& products, Index i) {
    with_group(sizes, products, i, k, v, [&](const auto& group) { group.forward(q, of_y, of_lse, write); });
  });
}

void ReferenceBackend::attention_merge(const Tensor& more_y, const Tensor& more_lse, const Tensor& y, const Tensor& lse,
                                       Stream) {
  const MergeSizes sizes = merge_sizes(more_y, more_lse, y, lse);
  const auto merge = [&](auto t) {
    using A = decltype(t);
    for (Index i = 0; i < sizes.samples * sizes.places * sizes.heads; ++i) {
      const Index to = sizes.row_of(i / sizes.heads) * sizes.heads + i % sizes.heads;
      A &log_sum = lse.as<A>()[to], more = more_lse.as<A>()[i];
      constexpr A nothing = -std::numeric_limits<A>::infinity();
      if (log_sum == nothing && more == nothing) continue;  // it sees no place
      const A largest = std::max(log_sum, more);
      const A total = std::exp(log_sum - largest) + std::exp(more - largest);
      const A kept = std::exp(log_sum - largest) / total, added = std::exp(more - largest) / total;
      A* of_y = y.as<A>() + to * sizes.dim;
      const A* more_of_y = more_y.as<A>() + i * sizes.dim;
      for (Index c = 0; c < sizes.dim; ++c) of_y[c] = kept * of_y[c] + added * more_of_y[c];
      log_sum = largest + std::log(total);
    }
  };
  y.dtype() == DType::f64 ? merge(double{}) : merge(float{});
}

void ReferenceBackend::attention_backward(const HeadShape& shape, const Heads& q, const Heads& k, const Heads& v,
                                          const Tensor& y, const Tensor& dy, const Tensor& lse, const Heads& dq,
                                          const Heads& dk, const Heads& dv, Write write, Stream) {
  const AttentionSizes sizes = attention_sizes(shape, q, k, v);
  check_results(sizes, q, y, lse);
  check_results(sizes, q, dy, lse);
  check_gradients(sizes, q, k, dq, dk, dv);
  const Heads of_y = all_heads(sizes, y, sizes.dim), of_dy = all_heads(sizes, dy, sizes.dim),
              of_lse = all_heads(sizes, lse, 1);
  in_parallel(sizes.samples * sizes.groups, [&](Backend& products, Index i) {
    with_group(sizes, products, i, k, v,
               [&](const auto& group) { group.backward(q, of_y, of_dy, of_lse, dq, dk, dv, write); });
  });
}

void ReferenceBackend::in_parallel(Index count, const std::function<void(Backend&, Index)>& work) {
  for (Index i = 0; i < count; ++i) work(*this, i);
}

}  // namespace partita
