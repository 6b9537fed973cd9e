#include "partita/strategies/plan/plan.hpp"

#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"

#include <algorithm>
#include <numeric>
#include <set>

namespace partita {

DType master_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

bool LayerBinding::trains() const {
  return std::any_of(weights.begin(), weights.end(), [](const WeightSpec& w) { return w.trained; });
}

bool LayerBinding::needs_any_dx() const {
  return std::any_of(needs_dx.begin(), needs_dx.end(), [](bool needs) { return needs; });
}

bool LayerBinding::gathers_weights() const {
  return std::any_of(rest.begin(), rest.end(), [](const Rest& each) { return !each.gather.empty(); });
}

namespace {

/// Calls reads(layer, reader) for each reader of each layer. A reader that has the layer as two inputs counts once.
template <class F>
void each_reader(const std::vector<LayerPlan>& layers, F&& reads) {
  for (int i = 0; i < static_cast<int>(layers.size()); ++i) {
    const auto& inputs = layers[i].inputs;
    for (auto input = inputs.begin(); input != inputs.end(); ++input)
      if (std::find(inputs.begin(), input, *input) == input) reads(static_cast<std::size_t>(*input), i);
  }
}

/// Returns the elements that one weight of a bucket occupies in the bucket's flat buffer.
Index elements_of(const Plan& plan, const Bucket::Entry& entry, int rank) {
  const LayerPlan& layer = plan.layers[entry.layer];
  const Index elements = layer->rest[entry.weight].w.elements(rank);
  return (elements + bucket_alignment - 1) / bucket_alignment * bucket_alignment;
}

}  // namespace

Readers::Readers(const std::vector<LayerPlan>& layers) : ends_(layers.size() + 1, 0) {
  each_reader(layers, [&](std::size_t layer, int) { ++ends_[layer + 1]; });
  std::partial_sum(ends_.begin(), ends_.end(), ends_.begin());
  readers_.resize(static_cast<std::size_t>(ends_.back()));
  each_reader(layers, [&](std::size_t layer, int reader) { readers_[ends_[layer]++] = reader; });
}

std::span<const int> Readers::of(int layer) const {
  const int begin = layer == 0 ? 0 : ends_[static_cast<std::size_t>(layer) - 1];
  const int end = ends_[layer];
  return std::span(readers_).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

std::vector<int> Plan::inputs() const {
  std::vector<int> inputs;
  for (std::size_t i = 0; i < layers.size(); ++i)
    if (layers[i].input >= 0) inputs.push_back(static_cast<int>(i));
  return inputs;
}

Interval Plan::samples(int microbatch) const { return balanced_block({0, workload.batch}, microbatches, microbatch); }

int Plan::replica_of(int microbatch) const {
  return second_replica && second_replica->runs_microbatch[microbatch] ? 1 : 0;
}

int Plan::microbatches_of(int replica) const {
  int count = 0;
  for (int j = 0; j < microbatches; ++j) count += replica_of(j) == replica ? 1 : 0;
  return count;
}

const std::vector<LayerPlan>& Plan::layers_of(int microbatch) const {
  return layers_of(replica_of(microbatch), samples(microbatch).extent() < samples(0).extent());
}

const std::vector<LayerPlan>& Plan::layers_of(int replica, bool of_remainder) const {
  if (replica == 1) return of_remainder ? second_replica->remainder_layers : second_replica->layers;
  return of_remainder ? remainder_layers : layers;
}

Index Plan::elements(const Bucket& bucket, int rank) const {
  Index sum = 0;
  for (const auto& entry : bucket.entries) sum += elements_of(*this, entry, rank);
  return sum;
}

std::vector<Index> Plan::offsets(const Bucket& bucket, int rank) const {
  std::vector<Index> offsets{0};
  for (const auto& entry : bucket.entries) offsets.push_back(offsets.back() + elements_of(*this, entry, rank));
  return offsets;
}

Interval Plan::share(const Bucket& bucket, int rank) const {
  const Interval all{0, elements(bucket, rank)};
  if (!sharded_optimizer) return all;
  const Grid& grid = grid_of(bucket.last());
  int place = 0;  // of the rank in its group, which is in ascending order
  for (int axis = 0; axis < grid.axes(); ++axis)
    if ((bucket.axes >> axis & 1U) != 0) place = place * grid.extent(axis) + grid.coordinate(rank, axis);
  return balanced_block(all, grid.group_size(bucket.axes), place);
}

bool Plan::holds_both_copies(const Bucket& bucket, int stage) const {
  const auto runs = [&](const Bucket& each) { return replica_on(layers[each.last()].group, stage) >= 0; };
  return bucket.other_copy >= 0 && runs(bucket) && runs(buckets[bucket.other_copy]);
}

int Plan::rank_of_other_copy(const Bucket& bucket, int rank) const {
  return grid_of(buckets[bucket.other_copy].last()).first_rank() + rank;
}

namespace {

void add_once(std::vector<AxisSet>& sets, AxisSet axes) {
  if (axes != 0 && std::find(sets.begin(), sets.end(), axes) == sets.end()) sets.push_back(axes);
}

void add_steps(std::vector<AxisSet>& sets, const LayerPlan::Steps& steps) {
  for (const auto& step : steps)
    if (step.verb != Verb::none && step.verb != Verb::exchange) add_once(sets, step.axes);
}

}  // namespace

std::vector<AxisSet> Plan::axis_sets(int stage) const {
  std::vector<AxisSet> sets;
  const auto add_steps = [&](const LayerPlan::Steps& steps) { partita::add_steps(sets, steps); };
  for (const auto* each : {&layers, &remainder_layers})
    for (const auto& layer : *each) {
      if (replica_on(layer.group, stage) < 0) continue;
      for (const auto& boundary : layer.sends_to_stages) add_steps(boundary.complete_sums);
      for (const auto& steps : layer->redistribute_input) add_steps(steps);
      for (const auto& collective : layer->at.collectives) add_once(sets, collective.axes);
      for (const auto& product : layer->at.products) add_steps(product.redistribute_c);
      add_steps(layer->redistribute_output);
      add_steps(layer->redistribute_dy);
      for (const auto& steps : layer->redistribute_dx) add_steps(steps);
    }
  return sets;
}

std::vector<AxisSet> Plan::gradient_axis_sets(int stage) const {
  std::vector<AxisSet> sets;
  for (const auto* each : {&layers, &remainder_layers})
    for (const auto& layer : *each)
      if (replica_on(layer.group, stage) >= 0)
        for (const auto& rest : layer->rest) {
          add_steps(sets, rest.gather);
          add_steps(sets, rest.scatter);
        }
  for (const auto& bucket : buckets) {
    if (replica_on(layers[bucket.last()].group, stage) < 0) continue;
    add_once(sets, bucket.axes);
    if (workload.optimizer.needs_norms()) add_once(sets, norm_axes(bucket));
  }
  return sets;
}

const LayerPlan& Plan::layer(std::string_view name) const {
  std::vector<std::string> names;
  for (const auto& each : layers) {
    if (each.name == name) return each;
    names.push_back(each.name);
  }
  fail("the model '{}' has no layer '{}'{}; it has {}", model, name, did_you_mean(name, names), quoted_list(names));
}

const LayerPlan& Plan::layer(const Value& value) const {
  if (value.model == model && value.layer >= 0 && value.layer < static_cast<int>(layers.size()))
    if (const auto& found = layers[value.layer]; found.name == value.name) return found;
  fail("the value '{}' is of another model, '{}'; give a value of '{}', or the layer's name", value.name, value.model,
       model);
}

int Plan::stage_running(int group, int replica) const {
  return (replica == 0 ? stage_of_group : second_replica->stage_of_group)[group];
}

int Plan::stage_of(int layer, int replica) const { return stage_running(layers[layer].group, replica); }

int Plan::replica_on(int group, int stage) const {
  for (int replica = 0; replica < replicas(); ++replica)
    if (stage_running(group, replica) == stage) return replica;
  return -1;
}

std::vector<int> Plan::readers(int layer, int stage, int replica) const {
  std::vector<int> all;
  for (const int reader : all_readers.of(layer))
    if (stage_of(reader, replica) == stage) all.push_back(reader);
  return all;
}

bool Plan::needs_output(int layer, int stage, int replica) const {
  const LayerPlan& bound = layers[layer];
  if (stage_of(layer, replica) == stage && !bound.sends_to_stages.empty()) return true;
  const auto all = readers(layer, stage, replica);
  return std::any_of(all.begin(), all.end(), [&](int reader) {
    const LayerPlan& other = layers[reader];
    return other.recompute && !(bound.recompute && other.group == bound.group);  // then `bound` is recomputed too
  });
}

std::uint64_t Plan::hash() const {
  std::string text =
      fmt::format("{} batch {} {} {} {} {} {} on", model, workload.batch, name(workload.dtype), workload.training,
                  workload.optimizer.print(), sharded_optimizer, name(gradient_dtype));
  for (const auto& grid : grids) text += fmt::format(" \"{}\"", grid.print());
  for (const int stage : stage_of_group) text += fmt::format(" {}", stage);
  text += '\n';
  auto all = layers;
  all.insert(all.end(), remainder_layers.begin(), remainder_layers.end());
  if (second_replica)
    for (const auto* each : {&second_replica->layers, &second_replica->remainder_layers})
      all.insert(all.end(), each->begin(), each->end());
  for (const auto& layer : all) {
    text += fmt::format("{} ", layer.group);
    for (const auto& boundary : layer.sends_to_stages)
      text += fmt::format("{} {} {} ", boundary.group, boundary.from.print(), boundary.to.print());
    text += fmt::format("{} {} {} {} {}", layer.name, layer.op->kind(), layer.op->describe(), layer->shape.print(),
                        layer->y.print());
    for (const int input : layer.inputs) text += fmt::format(" {}", input);
    for (const auto& x : layer->at.x) text += fmt::format(" {}", x.print());
    for (const auto& w : layer->at.w) text += fmt::format(" {}", w.print());
    for (const auto& dx : layer->at.dx) text += fmt::format(" {}", dx.print());
    for (const auto& dw : layer->at.dw) text += fmt::format(" {}", dw.print());
    for (const auto& rest : layer->rest) text += fmt::format(" {}", rest.w.print());
    for (const auto& product : layer->at.products)
      text += fmt::format(" {} {} {} {}{}", product.a_used.print(), product.b_used.print(), product.c_made.print(),
                          product.along, product.panels.size());
    text += layer.recompute ? " recompute\n" : "\n";
  }
  for (const auto& bucket : buckets) text += fmt::format("{} {} ", bucket.axes, bucket.entries.size());
  return partita::hash_text(text + schedule.print());
}

GroupGraph graph_of(const Plan& plan) {
  std::set<std::pair<int, int>> edges;
  const auto stage = [&](int group) { return plan.stage_of_group[group]; };
  for (const auto& layer : plan.layers)
    for (const int input : layer.inputs) {
      const auto& from = plan.layers[input];
      if (from.group == layer.group) continue;
      int producer = from.group;
      for (const auto& boundary : from.sends_to_stages)  // another group of the stage may receive it
        if (stage(boundary.group) == stage(layer.group) && boundary.group != layer.group) producer = boundary.group;
      edges.insert({producer, layer.group});
    }
  return {static_cast<int>(plan.stage_of_group.size()), {edges.begin(), edges.end()}};
}

// Stages have no rank in common. So all ranks that own the same elements are equally far from the receiver, and the
// first of them sends.
namespace {

/// Returns the replica from which a receiver takes its blocks: the rank of `have` that has its coordinates along the
/// axes over which `have` replicates, and 0 along the others. A receiver without such an axis goes by its number, so
/// that all replicas send equally much.
int replica_for(const Layout& have, const Grid& need, int receiver) {
  const Grid& grid = have.grid();
  int replica = 0, number = receiver;
  for (int axis = 0; axis < grid.axes(); ++axis) {
    if ((have.replicated() >> axis & 1U) == 0) continue;
    const int extent = grid.extent(axis), same = need.find(grid.name(axis));
    replica += (same < 0 ? number : need.coordinate(receiver, same)) % extent * grid.stride(axis);
    if (same < 0) number /= extent;
  }
  return replica;
}

}  // namespace

TransferPlan StageBoundary::transfer(int rank, bool back) const {
  const Layout &have = back ? to : from, &need = back ? from : to;
  const int sender = rank - have.grid().first_rank(), receiver = rank - need.grid().first_rank();
  const auto on = [](const Grid& grid, int inside) { return inside >= 0 && inside < grid.size(); };
  TransferPlan plan;
  if (on(have.grid(), sender)) {
    const int mine = representative_rank(have.grid(), sender, have.sharding());
    plan.sends = need.holders(have.owned(sender), 0, need.grid().all());
    std::erase_if(plan.sends, [&](const Transfer& each) { return replica_for(have, need.grid(), each.peer) != mine; });
    for (Transfer& each : plan.sends) each.peer += need.grid().first_rank();
  }
  if (on(need.grid(), receiver)) {
    plan.recvs = have.holders(need.owned(receiver), replica_for(have, need.grid(), receiver), have.sharding());
    for (Transfer& each : plan.recvs) each.peer += have.grid().first_rank();
  }
  return plan;
}

LayerPlan::Fusion LayerPlan::fusion() const {
  Fusion fusion{computed_by_producer, computed_by_reader, drops >= 0, forwards_gradient, adds_gradient, {}};
  if (activation_fusion() > ActivationFusion::where_fused) fusion.next_activation = next_activation->kind;
  return fusion;
}

bool LayerPlan::reads_weights(Action::Kind backward) const {
  return op->dw_reads_weights() || (backward != Action::Kind::backward_filter && needs_any_dx());
}

Kept LayerPlan::keeps() const {
  Kept kept = op->keeps();
  kept.y = kept.y || activation_fusion() == ActivationFusion::both;
  return kept;
}

int Plan::stage_of_rank(int rank) const {
  int stage = 0;
  while (rank >= grids[stage].first_rank() + grids[stage].size()) ++stage;
  return stage;
}

}  // namespace partita
