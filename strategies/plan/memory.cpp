#include "partita/strategies/plan/memory.hpp"

#include "partita/base/error.hpp"
#include "strategies/plan/memory_replay.hpp"
#include "strategies/plan/step.hpp"

#include <algorithm>

namespace partita {

namespace {

/// Adds the weights of a layer that `rank` of its stage holds outside of buckets: weights that are not trained, and
/// copies in the compute dtype.
void add_weights(const Plan& plan, const LayerPlan& layer, int rank, MemoryUse& use) {
  const Index element = size_of(plan.workload.dtype), master = size_of(master_dtype(plan.workload.dtype));
  for (std::size_t i = 0; i < layer->weights.size(); ++i) {
    if (!layer.holds(i)) continue;
    const Index elements = layer->rest[i].w.elements(rank);
    const bool rounded =
        layer->weights[i].trained && element != master;  // held twice: the master, and the copy that kernels read
    if (rounded) use[MemoryClass::weights] += elements * element;
    if (!layer->weights[i].trained || !plan.workload.training) use[MemoryClass::weights] += elements * master;
  }
}

/// Adds the weights, gradients and optimizer state of a bucket that `rank` of its stage holds. Counts all layers of the
/// bucket or, with `layer`, only this one.
void add_bucket(const Plan& plan, const Bucket& bucket, int rank, MemoryUse& use, std::optional<int> layer = {}) {
  const Index gradient = size_of(plan.gradient_dtype), master = size_of(master_dtype(plan.workload.dtype));
  const auto states = static_cast<Index>(plan.workload.optimizer.states().size());
  if (layer && !plan.sharded_optimizer) {  // what lies before it in the bucket does not matter
    for (const Bucket::Entry& entry : bucket.entries) {
      if (entry.layer != *layer) continue;
      const Index elements = plan.elements(Bucket{bucket.axes, bucket.sharding, {entry}}, rank);
      use[MemoryClass::weights] += elements * master;
      use[MemoryClass::gradients] += elements * gradient;
      use[MemoryClass::optimizer] += elements * master * states;
    }
    return;
  }
  const auto offsets = plan.offsets(bucket, rank);
  const Interval share = plan.share(bucket, rank);
  for (std::size_t i = 0; i < bucket.entries.size(); ++i) {
    if (layer && bucket.entries[i].layer != *layer) continue;
    const Interval place{offsets[i], offsets[i + 1]};
    use[MemoryClass::weights] += place.extent() * master;
    use[MemoryClass::gradients] += place.extent() * gradient;
    use[MemoryClass::optimizer] += intersect(place, share).extent() * master * states;
  }
}

}  // namespace

MemoryUse layer_memory(const Plan& plan, int layer, int world_rank) {
  const auto& bound = plan.layers[layer];
  if (plan.replica_on(bound.group, plan.stage_of_rank(world_rank)) < 0) return {};
  const int rank = plan.rank_in_stage(world_rank);
  const auto element = [&](const LayerPlan& of) { return size_of(of.op->output_type(plan.workload.dtype)); };
  const auto input = [&](std::size_t i) { return element(plan.layers[bound.inputs[i]]); };
  MemoryUse use;
  add_weights(plan, bound, rank, use);
  for (const auto& bucket : plan.buckets)
    if (layer >= bucket.entries.front().layer && layer <= bucket.entries.back().layer)
      add_bucket(plan, bucket, rank, use, layer);
  use[MemoryClass::activations] +=
      bound->y.elements(rank) * element(bound) + bound->at.y.elements(rank) * bound.op->keeps().more;
  if (!bound.inputs.empty()) {
    const HeldNumbers held = bound.op->numbers(bound->at.x[0], rank, plan.workload.training);
    use[MemoryClass::activations] += held.forward * size_of(DType::f64) +
                                     held.sums * size_of(master_dtype(plan.workload.dtype)) +
                                     held.elements * size_of(plan.workload.dtype);
  }
  if (bound.op->keeps().z) use[MemoryClass::activations] += bound->at.y.elements(rank) * element(bound);
  if (!bound.op->is_loss() && !bound->redistribute_output.empty())
    use[MemoryClass::activations] += bound->at.y.elements(rank) * element(bound);
  for (std::size_t i = 0; i < bound->redistribute_input.size(); ++i)
    if (!bound->redistribute_input[i].empty())
      use[MemoryClass::activations] += bound->at.x[i].elements(rank) * input(i);
  if (bound->at.x_halo) {
    const Box needed = bound->at.x_halo->needed(rank);
    if (!bound->at.x[0].owned(rank).contains(needed)) use[MemoryClass::halos] += needed.volume() * input(0);
  }
  return use;
}

void MemoryPeak::include(const MemoryPeak& other) {
  for (std::size_t i = 0; i < memory_classes; ++i) each.bytes[i] = std::max(each.bytes[i], other.each.bytes[i]);
  total = std::max(total, other.total);
}

MemoryUse state_memory(const Plan& plan, int world_rank) {
  const int stage = plan.stage_of_rank(world_rank), rank = plan.rank_in_stage(world_rank);
  const auto runs = [&](int group) { return plan.replica_on(group, stage) >= 0; };
  MemoryUse use;
  for (const auto& layer : plan.layers)
    if (runs(layer.group)) add_weights(plan, layer, rank, use);
  for (const auto& bucket : plan.buckets)
    if (runs(plan.layers[bucket.last()].group)) add_bucket(plan, bucket, rank, use);
  return use;
}

MemoryPeak peak_memory(const Plan& plan, int rank, const MemoryUse& held, const MessageMemory& messages) {
  return replay_memory(StepProgram(plan, plan.stage_of_rank(rank)), rank, held, messages);
}
MemoryPeak peak_memory(const Plan& plan, int rank) { return peak_memory(plan, rank, state_memory(plan, rank)); }

Index taken_memory(const Plan& plan, int rank, const MemoryUse& held, const MessageMemory& messages) {
  return replay_taken(StepProgram(plan, plan.stage_of_rank(rank)), rank, held, messages);
}

Box kept_box(const Plan& plan, int microbatch, int layer, int rank, Index places) {
  const LayerPlan& bound = plan.layers_of(microbatch)[layer];
  if (bound.op->place_use() != PlaceUse::before) return {};
  if (plan.stage_of(layer, plan.replica_of(microbatch)) != plan.stage_of_rank(rank)) return {};
  const Layout& x = bound->at.x[0];
  const int mine = plan.rank_in_stage(rank);
  Box box(3);
  box[0] = x.owned(mine)[0];
  box[1] = {0, bound.op->kept_channels(x, mine)};
  box[2] = {0, places};
  return box;
}

Index kept_memory(const Plan& plan, int rank, Index places) {
  Index elements = 0;
  for (int j = 0; j < plan.microbatches; ++j)
    for (int i = 0; i < std::ssize(plan.layers); ++i)
      if (const Box box = kept_box(plan, j, i, rank, places); box.dims() > 0) elements += box.volume();
  return elements * size_of(plan.workload.dtype);
}

void check_memory(const Plan& plan, Index limit) {
  check_memory(plan, limit, [&](int rank) { return peak_memory(plan, rank); });
}

void check_memory(const Plan& plan, Index limit, const std::function<MemoryPeak(int rank)>& peak_of) {
  if (limit == 0) return;
  MemoryPeak worst;
  int where = 0;
  for (int rank = 0; rank < plan.ranks(); ++rank)
    if (const MemoryPeak peak = peak_of(rank); peak.total > worst.total) {
      worst = peak;
      where = rank;
    }
  if (worst.total > limit)
    fail(
        "rank {} of the grid \"{}\"{} holds up to {} ({}), {} more than the memory limit of {}; shard samples or "
        "space over more ranks, or set recompute = true for some layers",
        plan.rank_in_stage(where), plan.grids[plan.stage_of_rank(where)].print(),
        plan.grids.size() > 1 ? fmt::format(" of stage {}", plan.stage_of_rank(where)) : "", print_bytes(worst.total),
        worst.each.print(), print_bytes(worst.total - limit), print_bytes(limit));
}

}  // namespace partita
