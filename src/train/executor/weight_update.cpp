#include "src/train/executor/weight_update.hpp"

#include "src/device/profile.hpp"
#include "src/train/executor/inspector.hpp"

#include <algorithm>

namespace partita {

namespace {

/// Part `number` of `parts` of an interval.
Interval balanced_part(Interval whole, Index number, Index parts) {
  const Index count = whole.extent();
  return {whole.lo + count * number / parts, whole.lo + count * (number + 1) / parts};
}

}  // namespace

WeightUpdate::WeightUpdate(const RunContext& context, Stream stream)
    : plan_(context.plan),
      backend_(context.backend),
      grid_(context.gradient_grid),
      replica_pair_(context.replica_pair),
      copy_pairs_(context.copy_pairs),
      parameters_(context.parameters),
      counter_(context.counter),
      stream_(stream),
      sums_(plan_.buckets.size()) {}

void WeightUpdate::label(const Bucket& bucket, const char* role) {
  counter_.set_label(plan_.layers[bucket.last()].name, role);
}

void WeightUpdate::start(int layer) {
  for (const Bucket& bucket : completed_by(plan_.buckets, layer))
    start_bucket(static_cast<std::size_t>(&bucket - plan_.buckets.data()));
}

void WeightUpdate::start_bucket(std::size_t b) {
  const Timed timed(Profile::Part::exchange);
  const Bucket& bucket = plan_.buckets[b];
  const Tensor dw = convert(parameters_.bucket(b).dw, master_dtype(plan_.workload.dtype), stream_);
  if (unscale_ != 1) backend_.axpby(unscale_, dw, 0, dw, stream_);
  sums_[b] = dw;
  if (bucket.axes == 0 || dw.volume() == 0) return;
  Communicator& group = grid_.along(bucket.axes);
  label(bucket, "dw");
  if (!plan_.sharded_optimizer) {
    traveling_.push_back(group.all_reduce(dw.data(), dw.volume(), dw.dtype(), ReduceOp::sum, stream_));
    return;
  }
  sums_[b] = dw.like(Box(Shape{{'F', parameters_.bucket(b).share.extent()}}), MemoryClass::workspace);
  kept_.push_back(dw);
  traveling_.push_back(group.reduce_scatter(dw.data(), sums_[b].data(), balanced_counts(dw.volume(), group.size()),
                                            dw.dtype(), stream_));
}

void WeightUpdate::progress() {
  if (traveling_.empty()) return;
  const Timed timed(Profile::Part::exchange);
  for (auto& request : traveling_) request.progress();
}

void WeightUpdate::wait() {
  for (auto& request : traveling_) request.wait(stream_);
  traveling_.clear();
}

void WeightUpdate::finish() {
  wait();
  kept_.clear();
}

void WeightUpdate::start_with_zeros(int group) {
  for (std::size_t b = plan_.buckets.size(); b-- > 0;)
    if (group_of(plan_.buckets[b]) == group) {
      parameters_.bucket(b).dw.zero(stream_);
      start_bucket(b);
    }
}

/// Calls visit(weight) for every weight of a layer that is not trained; for none if the layer is on another stage.
template <class Visit>
void WeightUpdate::each_statistic(int layer, Visit&& visit) {
  const auto i = static_cast<std::size_t>(layer);
  if (parameters_.layer(i).master.empty()) return;
  for (std::size_t w = 0; w < plan_.layers[i]->weights.size(); ++w)
    if (!plan_.layers[i]->weights[w].trained) visit(parameters_.layer(i).master[w].local);
}

/// The same for the weights of all layers.
template <class Visit>
void WeightUpdate::each_statistic(Visit&& visit) {
  for (std::size_t i = 0; i < plan_.layers.size(); ++i) each_statistic(static_cast<int>(i), visit);
}

void WeightUpdate::add_squares(const Tensor& squares) const {
  const Grid& grid = grid_.grid();
  for (std::size_t b = 0; b < sums_.size(); ++b) {
    const Tensor& sum = sums_[b];
    if (!sum || sum.volume() == 0) continue;
    const auto& bucket = plan_.buckets[b];
    if (bucket.other_copy >= 0 && plan_.layers[bucket.last()].copies_table) continue;  // the first one counts
    const std::vector<int> equal = grid.group(grid_.rank(), grid.all() & ~plan_.norm_axes(bucket));
    const Index me = std::find(equal.begin(), equal.end(), grid_.rank()) - equal.begin();
    Interval mine = balanced_part({0, sum.volume()}, me, std::ssize(equal));
    if (replica_pair_ != nullptr) mine = balanced_part(mine, replica_pair_->rank(), replica_pair_->size());
    backend_.add_squares(Tensor::view(sum, mine.lo, "F", Box(Shape{{'F', mine.extent()}})), squares, stream_);
  }
}

void WeightUpdate::scale(double factor) const {
  for (const Tensor& sum : sums_)
    if (sum && sum.volume() > 0) backend_.axpby(factor, sum, 0, sum, stream_);
}

void WeightUpdate::show_sums(Inspector& inspector) const {
  for (std::size_t b = 0; b < sums_.size(); ++b)
    if (sums_[b]) inspector.look_at_sum(plan_.buckets[b].last(), sums_[b]);
}

void WeightUpdate::drop() {
  for (auto& sum : sums_) sum = {};
}

void WeightUpdate::keep_statistics() {
  statistics_.clear();
  Index count = 0;
  const Tensor* first = nullptr;
  each_statistic([&](const Tensor& w) {
    if (count == 0) first = &w;
    count += w.volume();
  });
  if (count == 0) return;
  statistics_.push_back(Tensor::flat(*first, count, MemoryClass::workspace));
  move_statistics([](const Tensor& w, std::byte* kept) { return std::pair(w.data(), kept); });
}

void WeightUpdate::restore_statistics() {
  move_statistics([](const Tensor& w, std::byte* kept) { return std::pair(kept, w.data()); });
}

/// Moves all running statistics at once. ends(w, kept) returns the source and the target for the statistics w, whose
/// place among those that are kept is `kept`.
template <class Ends>
void WeightUpdate::move_statistics(Ends&& ends) {
  if (statistics_.empty()) return;
  const Tensor& all = statistics_.front();
  std::byte* kept = all.data();
  std::vector<BoxMove> moves;
  each_statistic([&](const Tensor& w) {
    if (w.volume() == 0) return;
    require(w.dtype() == all.dtype(), "running statistics must have one dtype");
    const auto [from, to] = ends(w, kept);
    moves.push_back({.from = from, .to = to, .from_type = w.dtype(), .to_type = w.dtype()});
    moves.back().push(w.volume(), 1, 1);
    kept += w.bytes();
  });
  all.device().move(moves, stream_);
}

void WeightUpdate::add_replicas(int group) {
  const Timed timed(Profile::Part::exchange);
  const auto add = [&](const Tensor& t) {
    if (t.volume() > 0)
      replica_pair_->all_reduce(t.data(), t.volume(), t.dtype(), ReduceOp::sum, stream_).wait(stream_);
  };
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    if (group_of(plan_.buckets[b]) != group) continue;
    label(plan_.buckets[b], "dw of both replicas");
    add(sums_[b]);
  }
  for (std::size_t i = 0; i < plan_.layers.size(); ++i)
    if (plan_.layers[i].group == group)
      each_statistic(static_cast<int>(i), [&](const Tensor& w) {
        counter_.set_label(plan_.layers[i].name, "running statistics of both replicas");
        add(w);
      });
}

void WeightUpdate::add_copies(int layer) {
  const Timed timed(Profile::Part::exchange);
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    const Bucket& bucket = plan_.buckets[b];
    const Tensor& sum = sums_[b];
    if (bucket.last() != layer || bucket.other_copy < 0 || sum.volume() == 0) continue;
    if (copy_pairs_[b]) {
      label(bucket, "dw of both copies");
      copy_pairs_[b]->all_reduce(sum.data(), sum.volume(), sum.dtype(), ReduceOp::sum, stream_).wait(stream_);
      continue;
    }
    const Tensor& other = sums_[bucket.other_copy];
    partita::add(other, sum, stream_);
    copy_box(sum, other, sum.box(), stream_);
  }
}

void WeightUpdate::clear_statistics(int layer) {
  each_statistic(layer, [&](const Tensor& w) { w.zero(stream_); });
}

void WeightUpdate::step(int group, StepRate at) {
  const Timed timed(Profile::Part::compute);
  bool gathers = false;
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    if (group_of(plan_.buckets[b]) != group) continue;
    apply_bucket(b, at);
    if (!plan_.sharded_optimizer) continue;
    gather(b);
    gathers = gathers || plan_.buckets[b].axes != 0;
  }
  finish();
  if (gathers) parameters_.refresh(stream_);  // update() has rounded only what this rank updates
}

/// Returns the part of each weight that this rank updates, one per entry of the bucket. A part may be empty.
std::vector<WeightPiece> WeightUpdate::pieces(std::size_t b) const {
  const auto& flat = parameters_.bucket(b);
  const auto& entries = plan_.buckets[b].entries;
  std::vector<WeightPiece> pieces;
  for (std::size_t e = 0; e < entries.size(); ++e) {
    const auto& spec = plan_.layers[entries[e].layer]->weights[entries[e].weight];
    const auto& layer = parameters_.layer(static_cast<std::size_t>(entries[e].layer));
    const Index begin = flat.offsets[e], elements = layer.master[entries[e].weight].local.volume();
    const Interval mine = intersect({begin, begin + elements}, flat.share);
    WeightPiece piece{.dtype = flat.w.dtype(), .count = mine.extent(), .decays = spec.decay};
    if (piece.count > 0) {
      const Index size = size_of(piece.dtype), local = (mine.lo - flat.share.lo) * size;
      piece.dw = sums_[b].data() + local;
      piece.w = flat.w.data() + mine.lo * size;
      for (std::size_t k = 0; k < flat.state.size(); ++k) piece.state[k] = flat.state[k].data() + local;
      const Tensor& rounded = layer.rounded[entries[e].weight];
      if (rounded.dtype() != piece.dtype) {
        piece.rounded_type = rounded.dtype();
        piece.rounded = rounded.data() + (mine.lo - begin) * size_of(rounded.dtype());
      }
    }
    pieces.push_back(piece);
  }
  return pieces;
}

/// Returns the squares of |w| and |direction| of each weight, summed over all ranks that hold parts of w; no tensor if
/// the method needs none.
Tensor WeightUpdate::norms(std::size_t b, StepRate at, std::span<const WeightPiece> pieces) {
  const auto& optimizer = plan_.workload.optimizer;
  if (!optimizer.needs_norms()) return {};
  const Box box(Shape{{'N', static_cast<Index>(pieces.size())}, {'C', 2}});
  const Tensor squares = parameters_.bucket(b).w.beside(DType::f64, "NC", box, MemoryClass::workspace);
  backend_.update_norms(optimizer, at, pieces, squares, stream_);
  if (const AxisSet axes = plan_.norm_axes(plan_.buckets[b]); axes != 0) {
    label(plan_.buckets[b], "norms");
    grid_.along(axes).all_reduce(squares.data(), squares.volume(), DType::f64, ReduceOp::sum, stream_).wait(stream_);
  }
  return squares;
}

void WeightUpdate::apply_bucket(std::size_t b, StepRate at) {
  const auto pieces = this->pieces(b);
  backend_.update(plan_.workload.optimizer, at, pieces, norms(b, at, pieces), stream_);
  sums_[b] = {};
}

void WeightUpdate::gather(std::size_t b) {
  const Timed timed(Profile::Part::exchange);
  const Bucket& bucket = plan_.buckets[b];
  const auto& flat = parameters_.bucket(b);
  if (bucket.axes == 0 || flat.w.volume() == 0) return;
  Communicator& group = grid_.along(bucket.axes);
  label(bucket, "w");
  const Box mine(Shape{{'F', flat.share.extent()}});
  kept_.push_back(flat.w.like(mine, MemoryClass::workspace));  // MPI does not allow overlapping buffers
  copy_box(Tensor::view(flat.w, flat.share.lo, "F", mine), kept_.back(), mine, stream_);
  traveling_.push_back(group.all_gather(kept_.back().data(), flat.w.data(),
                                        balanced_counts(flat.w.volume(), group.size()), flat.w.dtype(), stream_));
}

}  // namespace partita
