#include "src/model/attention_operators.hpp"
#include "src/model/operators.hpp"
#include "src/train/kernels/kernels.hpp"

#include <algorithm>
#include <cmath>

namespace partita {

namespace {

/// Attention that keeps the weights of all pairs of places, p = softmax(q k' / sqrt(dim)): y = p v. It
/// consists of products of matrices and a softmax between them.
class WholeAttentionKernel final : public Kernel {
 public:
  WholeAttentionKernel(const LayerPlan& layer, int rank)
      : heads_(static_cast<const AttentionOperator&>(*layer.op).heads(layer->input_shapes[0])),
        causal_(static_cast<const AttentionOperator&>(*layer.op).causal()),
        dropout_(static_cast<const AttentionOperator&>(*layer.op).dropout()),
        groups_(groups_of(layer->at.x[0].owned(rank)[1])) {}

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    auto& kept = state<State>(call);
    kept.x = x[0];
    if (x.size() > 1) kept.segments = x[1];
    kept.weights = y.beside(y.dtype(), y.names(), pairs(y), MemoryClass::activations);
    for_heads(y, [&](Index n, Index head) {
      multiply(call, false, true, scale(), query(x[0], n, head), key(x[0], n, head), 0,
               of_pairs(kept.weights, n, head));
    });
    call.rank.backend.softmax_heads(heads(), causal_, kept.segments, kept.weights, call.rank.stream);
    kept.dropped = dropped(call, kept.weights);
    for_heads(y, [&](Index n, Index head) {
      multiply(call, false, false, 1, of_pairs(kept.dropped, n, head), value(x[0], n, head), 0, result(y, n, head));
    });
  }

  /// Heads of a group add to the gradients of its keys and values in turn.
  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    const auto& [x, segments, weights, dropped] = state<State>(call);
    Box of_sample = weights.box();
    of_sample[0].hi = std::min(of_sample[0].lo + 1, of_sample[0].hi);
    const Tensor slopes = dx[0].beside(dx[0].dtype(), dx[0].names(), of_sample, MemoryClass::workspace);
    for (Index n = 0; n < dy.extent('N') && heads() > 0; ++n) {
      const Interval sample{weights.box()[0].lo + n, weights.box()[0].lo + n + 1};
      for (Index head = 0; head < heads(); ++head) {
        const double adds = head % heads_.in_group == 0 ? 0 : 1;
        multiply(call, true, false, 1, of_pairs(dropped, n, head), result(dy, n, head), adds, value(dx[0], n, head));
        multiply(call, false, true, 1, result(dy, n, head), value(x, n, head), 0, of_pairs(slopes, 0, head));
      }
      call.rank.backend.softmax_heads_backward(heads(), scale(), weights.rows(sample), dropped.rows(sample),
                                               slopes.shifted(0, n), call.rank.stream);
      for (Index head = 0; head < heads(); ++head) {
        const double adds = head % heads_.in_group == 0 ? 0 : 1;
        multiply(call, false, false, 1, of_pairs(slopes, 0, head), key(x, n, head), 0, query(dx[0], n, head));
        multiply(call, true, false, 1, of_pairs(slopes, 0, head), query(x, n, head), adds, key(dx[0], n, head));
      }
    }
  }

 private:
  struct State final : Saved {
    Tensor x, segments, weights, dropped;  // weights[N (heads places) L], and what dropout leaves of them
  };
  /// A row for each place.
  struct Matrix {
    void* data;
    DType dtype;
    Index rows, columns, step;
  };

  Interval groups_of(Interval channels) const { return {channels.lo / heads_.step(), channels.hi / heads_.step()}; }
  Index heads() const { return groups_.extent() * heads_.in_group; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(heads_.dim)); }
  Box pairs(const Tensor& y) const {
    Box box = y.box();
    const Index rows = heads_.in_group * y.extent('L');  // of a group
    box[1] = {groups_.lo * rows, groups_.hi * rows};
    return box;
  }
  /// The weights without those that are left out. A row has the weights of one place, in the order of WeightDropout.
  Tensor dropped(const KernelCall& call, const Tensor& weights) const {
    if (!call.training || dropout_ == 0) return weights;
    const Tensor kept = weights.like(weights.box(), MemoryClass::activations, Fill::none);
    const Index places = weights.extent('L'), columns = heads_.groups * heads_.in_group * places;
    Box box(2);
    box[0] = {weights.box()[0].lo * places, weights.box()[0].hi * places};
    box[1] = weights.box()[1];
    const auto rows = [&](const Tensor& x) { return Tensor::view(x, 0, "NC", box); };
    call.rank.backend.dropout(dropout_, call.dropout_numbers(), call.step, call.first_sample * places * columns,
                              Shape{{'N', box[0].hi}, {'C', columns}}, rows(weights), {}, rows(kept), call.rank.stream);
    return kept;
  }

  /// The channels of a sample from `first` on.
  static Matrix matrix(const Tensor& x, Index n, Index first, Index columns) {
    const Index places = x.extent('L'), channels = x.extent('C');
    auto* data = static_cast<std::byte*>(x.data()) + (n * places * channels + first) * size_of(x.dtype());
    return {data, x.dtype(), places, columns, channels};
  }
  Index in_group(Index head) const { return head / heads_.in_group * heads_.step(); }
  Matrix query(const Tensor& x, Index n, Index head) const {
    return matrix(x, n, in_group(head) + head % heads_.in_group * heads_.dim, heads_.dim);
  }
  Matrix key(const Tensor& x, Index n, Index head) const {
    return matrix(x, n, in_group(head) + heads_.in_group * heads_.dim, heads_.dim);
  }
  Matrix value(const Tensor& x, Index n, Index head) const {
    return matrix(x, n, in_group(head) + (heads_.in_group + 1) * heads_.dim, heads_.dim);
  }
  Matrix result(const Tensor& y, Index n, Index head) const { return matrix(y, n, head * heads_.dim, heads_.dim); }
  static Matrix of_pairs(const Tensor& weights, Index n, Index head) {
    return matrix(weights, n, head * weights.extent('L'), weights.extent('L'));
  }

  template <class F>
  void for_heads(const Tensor& y, F&& f) const {
    for (Index n = 0; n < y.extent('N'); ++n)
      for (Index head = 0; head < heads(); ++head) f(n, head);
  }

  /// C = alpha * op(A) op(B) + beta * C
  static void multiply(const KernelCall& call, bool transpose_a, bool transpose_b, double alpha, const Matrix& a,
                       const Matrix& b, double beta, const Matrix& c) {
    call.rank.backend.gemm(c.dtype, transpose_a, transpose_b, c.rows, c.columns, transpose_a ? a.rows : a.columns,
                           alpha, a.data, a.step, b.data, b.step, beta, c.data, c.step, call.rank.stream);
  }

  HeadGroups heads_;
  bool causal_;
  double dropout_;
  Interval groups_;  // of this rank
};

}  // namespace

std::unique_ptr<Kernel> make_whole_attention_kernel(const LayerPlan& layer, int rank) {
  return std::make_unique<WholeAttentionKernel>(layer, rank);
}

}  // namespace partita
