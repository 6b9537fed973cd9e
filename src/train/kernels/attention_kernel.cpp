#include "partita/tensor/exchange.hpp"
#include "src/model/attention_operators.hpp"
#include "src/model/operators.hpp"
#include "src/train/kernels/kernels.hpp"

#include <cmath>
#include <optional>

namespace partita {

namespace {

/// Attention of the groups of heads and of the places that the rank holds, with the keys and values of all places.
/// Where the places are cut, keys and values travel around the ranks (Ring). While a block is on its way to the next
/// rank, and another one arrives, the rank computes with it.
class AttentionKernel final : public Kernel {
 public:
  AttentionKernel(const LayerPlan& layer, int rank)
      : AttentionKernel(static_cast<const AttentionOperator&>(*layer.op), layer, rank) {}

  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    auto& kept = state<State>(call);
    kept.x = x[0];
    kept.y = y;
    if (x.size() > 1) kept.segments = x[1];
    Box numbers = y.box();
    numbers[1] = {0, shape_.groups * shape_.queries};
    kept.log_sums = y.beside(master_dtype(y.dtype()), y.names(), numbers, MemoryClass::activations);
    if (call.kept != nullptr) return forward_of_kept(call, x[0], y, kept.log_sums);
    const Tensor sum = steps_.size() > 1 && steps_[1].block ? in_type_of_sums(y) : y;
    Write write = Write::over;
    const HeadShape shape = shape_of(call, kept.segments);
    each_block(call, own(x[0]), [&](std::size_t t, const Block& block) {
      if (!steps_[t].block) return;
      call.rank.backend.attention_forward(shape, queries(x[0]), block.keys, block.values, sum, kept.log_sums, write,
                                          call.rank.stream);
      write = Write::add;
    });
    if (sum.data() != y.data()) convert(sum, y, call.rank.stream);
  }

  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    const auto& kept = state<State>(call);
    const Tensor sum = steps_.size() > 1 ? in_type_of_sums(dx[0]) : dx[0];
    const Block own_gradient = own(sum);
    const HeadShape shape = shape_of(call, kept.segments);
    Block before;  // the gradient of the block of the step before
    each_block(call, own(kept.x), [&](std::size_t t, const Block& block) {
      const RingStep& step = steps_[t];
      // What others have added to a gradient travels while this rank computes its own part.
      const Block others = step.sum_from ? made(sum, *step.block) : Block();
      const Block from_all = step.own_from ? made(sum, *steps_[0].block) : Block();
      call.label("ring dx");
      auto passed = exchange(call, before, step.sum_to, others, step.sum_from);
      auto comes_home = exchange(call, {}, {}, from_all, step.own_from);
      Block gradient = own_gradient;
      if (step.block) {
        if (t > 0) gradient = made(sum, *step.block);
        if (t > 0) gradient.rows.zero(call.rank.stream);
        call.rank.backend.attention_backward(shape, queries(kept.x), block.keys, block.values, kept.y, dy,
                                             kept.log_sums, queries(sum), gradient.keys, gradient.values,
                                             t == 0 ? Write::over : Write::add, call.rank.stream);
      }
      if (passed) passed->finish();
      if (step.sum_from) add(others.rows, gradient.rows, call.rank.stream);
      if (comes_home) comes_home->finish();
      if (step.own_from) add_box(from_all.rows, own_gradient.rows, traveling(own_gradient), call.rank.stream);
      before = step.block && t > 0 ? gradient : Block();
    });
    if (sum.data() != dx[0].data()) convert(sum, dx[0], call.rank.stream);
  }

 private:
  struct State final : Saved {
    Tensor x, y, log_sums, segments;
  };
  /// Keys and values of some places, or their gradients.
  struct Block {
    Tensor rows;  // for each place and group one row of keys and values, and in x of queries
    Heads keys, values;
  };

  AttentionKernel(const AttentionOperator& op, const LayerPlan& layer, int rank)
      : heads_(op.heads(layer->input_shapes[0])),
        shape_{layer->at.x[0].owned(rank).extent(1) / heads_.step(), heads_.in_group, heads_.dim,
               1 / std::sqrt(static_cast<double>(heads_.dim)), op.causal()},
        dropout_(op.dropout()),
        places_(layer->shape['L']),
        steps_(layer->at.ring ? layer->at.ring->steps(rank) : std::vector<RingStep>(1)) {
    if (!layer->at.ring) steps_[0].block.emplace();  // all of x
  }

  HeadShape shape_of(const KernelCall& call, const Tensor& segments) const {
    HeadShape shape = shape_;
    shape.segments = segments;
    if (call.training && dropout_ > 0)
      shape.dropout = {.rate = dropout_,
                       .random = call.dropout_numbers(),
                       .step = call.step,
                       .first_sample = call.first_sample,
                       .heads = heads_.groups * heads_.in_group,
                       .places = places_};
    return shape;
  }
  Heads queries(const Tensor& x) const { return {x, 0, heads_.step()}; }
  /// The keys and values among the channels of x.
  Block own(const Tensor& x) const {
    return {
        rows(x, {0, heads_.step()}), {x, before_keys(), heads_.step()}, {x, before_keys() + heads_.dim, heads_.step()}};
  }
  /// A new block for the keys and values in a box.
  Block made(const Tensor& like, const Box& box) const {
    const Index row = 2 * heads_.dim;
    const Tensor block = like.like(box, MemoryClass::workspace, Fill::none);
    return {rows(block, {before_keys(), heads_.step()}), {block, 0, row}, {block, heads_.dim, row}};
  }
  static Tensor rows(const Tensor& x, Interval columns) {
    const Index count = x.volume() / columns.extent();
    Box box(2);
    box[0] = {0, count};
    box[1] = columns;
    return Tensor::view(x, 0, "NC", box);
  }
  Index before_keys() const { return heads_.in_group * heads_.dim; }
  /// The part of the rows that travels.
  Box traveling(const Block& block) const {
    Box box = block.rows.box();
    box[1] = {before_keys(), heads_.step()};
    return box;
  }
  static Tensor in_type_of_sums(const Tensor& x) {
    const DType sums = master_dtype(x.dtype());
    return sums == x.dtype() ? x : x.beside(sums, x.names(), x.box(), MemoryClass::workspace);
  }

  /// Keeps the keys and values of x, whose queries then see those of all places up to theirs.
  void forward_of_kept(const KernelCall& call, const Tensor& x, const Tensor& y, const Tensor& log_sums) const {
    const Index pair = 2 * heads_.dim, channels = shape_.groups * pair, length = call.kept->extent('L');
    const Interval places{call.first_place, call.first_place + x.extent('L')};
    const Tensor from = x.shifted(2, places.lo).shifted(1, -x.box()[1].lo);
    for (Index group = 0; group < shape_.groups; ++group) {
      Box part = from.box();
      part[1] = {group * pair, (group + 1) * pair};
      copy_box(from.shifted(1, group * (pair - heads_.step()) - heads_.in_group * heads_.dim), *call.kept, part,
               call.rank.stream);
    }
    for (Index n = x.box()[0].lo; n < x.box()[0].hi; ++n) {
      const auto of_sample = [&](const Tensor& tensor) { return tensor.shifted(2, places.lo).rows({n, n + 1}); };
      Box box(3);
      box[0] = {n, n + 1};
      box[1] = {0, channels};
      box[2] = {0, places.hi};
      const Tensor seen = Tensor::view(*call.kept, (n - x.box()[0].lo) * length * channels, x.names(), box);
      call.rank.backend.attention_forward(shape_, queries(of_sample(x)), {seen, 0, pair}, {seen, heads_.dim, pair},
                                          of_sample(y), of_sample(log_sums), Write::over, call.rank.stream);
    }
  }

  /// Calls compute(t, block) for each step t, while the block travels on and the next one arrives.
  template <class Compute>
  void each_block(const KernelCall& call, const Block& own, Compute&& compute) const {
    Block block = own;
    for (std::size_t t = 0; t < steps_.size(); ++t) {
      const Block next = steps_[t].block_from ? made(own.keys.x, *steps_[t + 1].block) : Block();
      call.label("ring x");
      auto passed = exchange(call, block, steps_[t].block_to, next, steps_[t].block_from);
      compute(t, block);
      if (passed) passed->finish();
      block = next;
    }
  }

  /// Starts to send one block and to receive another one.
  std::optional<Exchange> exchange(const KernelCall& call, const Block& sent, std::optional<int> to,
                                   const Block& received, std::optional<int> from) const {
    if (!to && !from) return std::nullopt;
    TransferPlan plan;
    if (to) plan.sends.push_back({*to, traveling(sent)});
    if (from) plan.recvs.push_back({*from, traveling(received)});
    const Tensor &out = to ? sent.rows : received.rows, &in = from ? received.rows : sent.rows;
    return Exchange(plan, out, in, call.grid.world(), call.rank.stream);
  }

  HeadGroups heads_;
  HeadShape shape_;
  double dropout_;
  Index places_;
  std::vector<RingStep> steps_;
};

}  // namespace

std::unique_ptr<Kernel> make_attention_kernel(const LayerPlan& layer, int rank) {
  if (static_cast<const AttentionOperator&>(*layer.op).whole()) return make_whole_attention_kernel(layer, rank);
  return std::make_unique<AttentionKernel>(layer, rank);
}

}  // namespace partita
