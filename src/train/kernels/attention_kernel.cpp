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
/// rank, and another one arrives, the rank computes with it, or with the queries of a rank that it helps.
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
    const Tensor sum = adds_results(steps_) ? in_type_of_sums(y) : y;
    const Stream stream = call.rank.stream;
    const Strip of_y = strip(y, {0, before_keys()}), of_log_sums = strip(kept.log_sums, {0, shape_.queries});
    const auto results = [&](Interval places) {
      return Strips{at_places(of_y, places, kept.log_sums.dtype()), at_places(of_log_sums, places)};
    };
    Strips before;  // results of the step before, of another rank's queries
    const auto compute = [&](std::size_t t, const Block& keys, const Strips& q) {
      const RingStep& step = steps_[t];
      const auto& returned = step.moves[RingStep::results].receive;
      const Strips arriving = returned ? results(returned->box[2]) : Strips();
      call.label("ring y");
      Exchanges under_way;
      start(under_way, call, step.moves[RingStep::results], before, arriving);
      Strips made_here;
      if (!q.empty()) {
        made_here = results(step.computed[2]);
        call.rank.backend.attention_forward(shape_of(call, kept.segments), {q[0].x, 0, before_keys()}, keys.keys,
                                            keys.values, made_here[0].x, made_here[1].x, Write::over, stream);
      } else if (step.keys) {
        for (const Slice& part : slices(x[0], step.computed[2])) {
          const Block of_part = part.samples(keys);
          call.rank.backend.attention_forward(shape_of(call, part.samples(kept.segments)), queries(part.places(x[0])),
                                              of_part.keys, of_part.values, part.places(sum),
                                              part.places(kept.log_sums), t == 0 ? Write::over : Write::add, stream);
        }
      }
      finish(under_way);
      if (returned) call.rank.backend.attention_merge(arriving[0].x, arriving[1].x, sum, kept.log_sums, stream);
      before = std::move(made_here);
    };
    each_step(call, own(x[0]), {strip(x[0], {0, before_keys()})}, compute);
    if (sum.data() != y.data()) convert(sum, y, stream);
  }

  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    const auto& kept = state<State>(call);
    const Tensor sum = steps_.size() > 1 ? in_type_of_sums(dx[0]) : dx[0];
    const Stream stream = call.rank.stream;
    const Block own_gradient = own(sum);
    const Interval columns{0, before_keys()};
    const Strip of_y = strip(kept.y, columns);
    Strips before, before_of_queries;  // gradients of the step before, of what other ranks have
    const auto compute = [&](std::size_t t, const Block& keys, const Strips& q) {
      const RingStep& step = steps_[t];
      const auto arriving = [&](RingStep::Part part) {
        const auto& from = step.moves[part].receive;
        return from ? made(sum, from->box) : Block();
      };
      // What others have added to a gradient travels while this rank computes its own part.
      const Block others = arriving(RingStep::sum), from_all = arriving(RingStep::own_sum);
      const auto& returned = step.moves[RingStep::results].receive;
      const Strips of_queries = returned ? Strips{at_places(of_y, returned->box[2], sum.dtype())} : Strips();
      call.label("ring dx");
      Exchanges under_way;
      start(under_way, call, step.moves[RingStep::sum], before, {others.strip});
      start(under_way, call, step.moves[RingStep::own_sum], before, {from_all.strip});
      start(under_way, call, step.moves[RingStep::results], before_of_queries, of_queries);
      Block gradient = own_gradient;
      Strips made_here;
      if (!q.empty()) {
        made_here = {at_places(of_y, step.computed[2], sum.dtype())};
        made_here[0].x.zero(stream);
        call.rank.backend.attention_backward(shape_of(call, kept.segments), {q[0].x, 0, before_keys()}, keys.keys,
                                             keys.values, q[1].x, q[2].x, q[3].x, {made_here[0].x, 0, before_keys()},
                                             gradient.keys, gradient.values, Write::add, stream);
      } else if (step.keys) {
        if (t > 0) gradient = made(sum, *step.keys);
        if (t > 0) gradient.keys.x.zero(stream);
        for (const Slice& part : slices(kept.x, step.computed[2])) {
          const Block of_part = part.samples(keys), to = part.samples(gradient);
          call.rank.backend.attention_backward(
              shape_of(call, part.samples(kept.segments)), queries(part.places(kept.x)), of_part.keys, of_part.values,
              part.places(kept.y), part.places(dy), part.places(kept.log_sums), queries(part.places(sum)), to.keys,
              to.values, t == 0 ? Write::over : Write::add, stream);
        }
      }
      finish(under_way);
      if (others) add(others.keys.x, gradient.keys.x, stream);
      if (from_all) add_box(from_all.strip.rows, own_gradient.strip.rows, from_all.strip.rows.box(), stream);
      if (returned) add_box(of_queries[0].rows, strip(sum, columns).rows, of_queries[0].rows.box(), stream);
      before = {gradient.strip};
      before_of_queries = std::move(made_here);
    };
    each_step(call, own(kept.x),
              {strip(kept.x, columns), of_y, strip(dy, columns), strip(kept.log_sums, {0, shape_.queries})}, compute);
    if (sum.data() != dx[0].data()) convert(sum, dx[0], stream);
  }

 private:
  struct State final : Saved {
    Tensor x, y, log_sums, segments;
  };
  /// The columns of a tensor that travel. `rows` has the same elements as x, as rows of groups at places: N L G C.
  struct Strip {
    Tensor x, rows;
    Interval columns;
    Box at(const Box& places) const {
      Box box = rows.box();
      box[1] = places[2];
      box[3] = columns;
      return box;
    }
  };
  using Strips = std::vector<Strip>;
  using Exchanges = std::vector<Exchange>;
  /// Keys and values of some places, or their gradients.
  struct Block {
    Strip strip;
    Heads keys, values;
    explicit operator bool() const { return static_cast<bool>(keys.x); }
  };
  /// All samples, or some places of one of them.
  struct Slice {
    std::optional<Index> sample;
    Interval interval;
    Tensor places(const Tensor& x) const {
      if (!sample) return x;
      Box box = x.box();
      box[0] = {*sample, *sample + 1};
      box[2] = interval;
      return Tensor::view(x, x.offset({*sample, box[1].lo, interval.lo}), x.names(), box);
    }
    Tensor samples(const Tensor& x) const { return sample && x ? x.rows({*sample, *sample + 1}) : x; }
    Block samples(Block block) const {
      block.keys.x = block.values.x = samples(block.keys.x);
      return block;
    }
  };

  AttentionKernel(const AttentionOperator& op, const LayerPlan& layer, int rank)
      : heads_(op.heads(layer->input_shapes[0])),
        shape_{layer->at.x[0].owned(rank).extent(1) / heads_.step(), heads_.in_group, heads_.dim,
               1 / std::sqrt(static_cast<double>(heads_.dim)), op.causal()},
        dropout_(op.dropout()),
        places_(layer->shape['L']),
        steps_(layer->at.ring ? layer->at.ring->steps(rank) : std::vector<RingStep>(1)) {
    if (!layer->at.ring) steps_[0].keys = steps_[0].computed = layer->at.x[0].owned(rank);
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
    return {strip(x, {before_keys(), heads_.step()}),
            {x, before_keys(), heads_.step()},
            {x, before_keys() + heads_.dim, heads_.step()}};
  }
  /// A new block for the keys and values in a box.
  Block made(const Tensor& like, const Box& box) const {
    const Index row = 2 * heads_.dim;
    const Tensor block = like.like(box, MemoryClass::workspace, Fill::none);
    return {strip(block, {before_keys(), heads_.step()}, before_keys()), {block, 0, row}, {block, heads_.dim, row}};
  }
  /// A new tensor for what a strip has, or would have, at some places.
  Strip at_places(const Strip& like, Interval places) const { return at_places(like, places, like.x.dtype()); }
  Strip at_places(const Strip& like, Interval places, DType dtype) const {
    const Index columns = like.columns.extent(), first = like.x.box()[1].lo / like.rows.extent('C');
    Box box = like.x.box();
    box[1] = {first * columns, (first + shape_.groups) * columns};
    box[2] = places;
    return strip(like.x.beside(dtype, like.x.names(), box, MemoryClass::workspace), {0, columns});
  }
  /// Some columns of a tensor, whose first one has the number `first`.
  Strip strip(const Tensor& x, Interval columns, Index first = 0) const {
    Box box(4);
    box[0] = x.box()[0];
    box[1] = x.box()[2];
    box[2] = {0, shape_.groups};
    box[3] = {first, first + x.box().extent(1) / std::max<Index>(shape_.groups, 1)};
    return {x, Tensor::view(x, 0, "NLGC", box), columns};
  }
  /// The parts of x in which places are contiguous: all of it if these are all places, else one of each sample.
  static std::vector<Slice> slices(const Tensor& x, Interval places) {
    if (places == x.box()[2]) return {Slice{std::nullopt, places}};
    std::vector<Slice> slices;
    for (Index n = x.box()[0].lo; n < x.box()[0].hi; ++n) slices.push_back({n, places});
    return slices;
  }
  Index before_keys() const { return heads_.in_group * heads_.dim; }
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

  /// Calls compute(t, block, queries) for each step t, while what the next step needs travels. `queries` are those of a
  /// rank that is helped: queries and, if `own_queries` has them, y, dy and log sums.
  template <class Compute>
  void each_step(const KernelCall& call, const Block& own, const Strips& own_queries, Compute&& compute) const {
    Block visitor;
    Strips queries;
    for (std::size_t t = 0; t < steps_.size(); ++t) {
      const auto& moves = steps_[t].moves;
      const Block& block = visitor ? visitor : own;
      const auto& next_block = moves[RingStep::block].receive;
      const Block next = next_block ? made(own.keys.x, next_block->box) : Block();
      Strips next_queries;
      if (const auto& from = moves[RingStep::queries].receive)
        for (const Strip& like : own_queries) next_queries.push_back(at_places(like, from->box[2]));
      call.label("ring x");
      Exchanges under_way;
      start(under_way, call, moves[RingStep::block], {block.strip}, {next.strip});
      start(under_way, call, moves[RingStep::queries], own_queries, next_queries);
      compute(t, block, queries);
      finish(under_way);
      visitor = next;
      queries = std::move(next_queries);
    }
  }

  /// Starts to send some strips, and to receive others, each in a message.
  static void start(Exchanges& under_way, const KernelCall& call, const RingStep::Move& move, const Strips& sent,
                    const Strips& received) {
    if (!move.send && !move.receive) return;
    for (std::size_t i = 0; i < (move.send ? sent : received).size(); ++i) {
      TransferPlan plan;
      if (move.send) plan.sends.push_back({move.send->peer, sent[i].at(move.send->box)});
      if (move.receive) plan.recvs.push_back({move.receive->peer, received[i].at(move.receive->box)});
      const Tensor &out = move.send ? sent[i].rows : received[i].rows,
                   &in = move.receive ? received[i].rows : sent[i].rows;
      under_way.emplace_back(plan, out, in, call.grid.world(), call.rank.stream);
    }
  }
  static void finish(Exchanges& under_way) {
    for (Exchange& each : under_way) each.finish();
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
