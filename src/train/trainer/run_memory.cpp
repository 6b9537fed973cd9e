#include "src/train/trainer/run_memory.hpp"

#include "src/train/checkpoint/written_rows.hpp"
#include "src/train/data/sample_list.hpp"
#include "src/train/executor/batch_boxes.hpp"
#include "src/train/trainer/sample_values.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace partita {

MessageMemory message_memory(const Communicator& between, bool overlap) {
  return {between.packs(), overlap, overlap && between.asynchronous()};
}

MemoryPeak holding(const MemoryUse& held) { return {held, held.total()}; }

namespace {

/// Groups of the ranks `first` to `first + count` - 1 that have a number in common. That of `own` comes first.
template <class NumberOf>
std::vector<std::vector<int>> groups_by(int first, int count, int own, NumberOf&& number_of) {
  std::map<int, std::vector<int>> groups;
  for (int rank = first; rank < first + count; ++rank) groups[number_of(rank)].push_back(rank);
  std::vector<std::vector<int>> all{groups.extract(number_of(own)).mapped()};
  for (auto& [number, group] : groups) all.push_back(std::move(group));
  return all;
}

/// The bytes that a rank reads of the first microbatch.
Index batch_bytes(const Plan& plan, int rank) {
  const auto& loss = plan.layers_of(0).back();
  const DType dtype = plan.workload.dtype;
  Index bytes =
      target_box(plan, 0, rank).volume() * size_of(loss.op->target(loss->input_shapes[0]).labels ? DType::i32 : dtype);
  for (const int input : plan.inputs())
    bytes += image_box(plan, input, 0, rank).volume() * size_of(plan.layers[input].op->output_type(dtype));
  return bytes;
}

}  // namespace

void RunMemory::each_batch(Index samples, const std::function<void(Index batch, Index count)>& visit) const {
  if (samples >= batch_) visit(batch_, samples / batch_);
  if (samples % batch_ > 0) visit(samples % batch_, 1);
}

DataShare RunMemory::share(Index samples, bool training, int rank) const {
  DataShare share;
  const std::vector<int> inputs = share.layers = plan().inputs();
  for (const int input : inputs) share.names.push_back(plan().layers[input].name);
  share.inputs.resize(inputs.size());
  // The first box with samples says what the rank reads of each; a rank without any has an empty box.
  std::vector<bool> reads(inputs.size() + 1, false);
  const auto add = [&](Index count, const Box& box, Index& all, Box& inside, std::vector<bool>::reference known) {
    all += count * box.extent(0);
    if (!known) inside = inside_of(box);
    known = known || !box.empty();
  };
  each_batch(samples, [&](Index batch, Index count) {
    const Plan& plan = plan_of_(batch, training);
    for (int m = 0; m < plan.microbatches; ++m) {
      for (std::size_t i = 0; i < inputs.size(); ++i)
        add(count, image_box(plan, inputs[i], m, rank), share.inputs[i].samples, share.inputs[i].box, reads[i]);
      add(count, target_box(plan, m, rank), share.targets, share.target_box, reads.back());
    }
  });
  return share;
}

Index RunMemory::data_bytes(const Dataset& data, const DataShare& share, const Augmentation& augmentation) {
  const auto own = data.inputs();
  const std::vector<int> numbers = match_inputs(data, share.names);
  std::vector<SampleShare> by_number(own.size());
  for (std::size_t i = 0; i < numbers.size(); ++i)
    by_number[numbers[i]] = {share.inputs[i].samples,
                             source_box(own[numbers[i]].shape, share.inputs[i].box, augmentation)};
  return data.bytes_to_hold_inputs(by_number, share.targets, share.target_box);
}

Index RunMemory::list_bytes(const Dataset& data, const DataShare& share) {
  if (!data.needs_announcement()) return 0;
  Index most = share.targets;
  for (const SampleShare& input : share.inputs) most = std::max(most, input.samples);
  return most * Index{sizeof(Index)};
}

Index RunMemory::order_bytes(Index samples, bool training) {
  return training ? SampleList::bytes(samples, samples) : 0;
}

Index RunMemory::shared_bytes(std::span<const DataPass> passes, const Communicator& world, int rank) const {
  const Plan& whole = plan();
  const int stage = whole.stage_of_rank(rank);
  const Grid& grid = whole.grids[stage];
  std::set<AxisSet> sets;
  const auto add = [&](const Plan& plan) {
    for (const auto& of : {plan.axis_sets(stage), plan.gradient_axis_sets(stage)}) sets.insert(of.begin(), of.end());
  };
  add(whole);
  for (const auto& pass : passes)
    each_batch(pass.data->size(), [&](Index batch, Index) { add(plan_of_(batch, pass.training)); });
  // Of the communicators that StageRanks makes, in its order.
  const auto of_job = [&](auto&& number_of) {
    return world.shared_bytes_of(groups_by(0, world.size(), rank, number_of));
  };
  const int first = grid.first_rank();
  Index bytes = of_job([](int) { return 0; });
  if (whole.grids.size() > 1) bytes += of_job([&](int r) { return whole.stage_of_rank(r); });
  for (const AxisSet axes : sets)
    bytes += world.shared_bytes_of(
        groups_by(first, grid.size(), rank, [&](int r) { return representative_rank(grid, r - first, axes); }));
  const auto last = static_cast<int>(whole.grids.size()) - 1;
  if (whole.second_replica)
    bytes += of_job([&](int r) {
      const int of_rank = whole.stage_of_rank(r);
      return whole.grids[std::min(of_rank, last - of_rank)].first_rank() + whole.rank_in_stage(r);
    });
  for (const Bucket& bucket : whole.buckets) {
    if (bucket.other_copy < 0 || whole.stage_of(bucket.last()) != stage || whole.holds_both_copies(bucket, stage))
      continue;
    const int other = whole.stage_of(whole.buckets[bucket.other_copy].last());
    bytes += of_job([&](int r) {
      const int of_rank = whole.stage_of_rank(r);
      return of_rank == stage || of_rank == other ? whole.rank_in_stage(r) : whole.ranks();
    });
  }
  return bytes;
}

MemoryPeak RunMemory::pass_peak(Index samples, bool training, const MemoryUse& held, int rank, bool arrives) const {
  MemoryPeak peak = holding(held);
  each_batch(samples, [&](Index batch, Index) {
    const Plan& plan = plan_of_(batch, training);
    peak.include(step_peak(plan, in_step(plan, held, rank, arrives), rank));
  });
  return peak;
}

MemoryUse RunMemory::in_step(const Plan& plan, MemoryUse held, int rank, bool arrives) const {
  if (arrives) held[MemoryClass::workspace] += batch_bytes(plan, rank);
  if (!may_skip_ || !plan.workload.training) return held;
  const int stage = plan.stage_of_rank(rank);
  for (const auto& layer : plan.layers)
    for (std::size_t w = 0; w < layer->weights.size(); ++w)
      if (!layer->weights[w].trained && plan.replica_on(layer.group, stage) >= 0)
        held[MemoryClass::workspace] +=
            layer->at.w[w].elements(plan.rank_in_stage(rank)) * size_of(master_dtype(plan.workload.dtype));
  return held;
}

namespace {

/// The bytes of the states of a sharded optimizer, gathered on a rank.
Index gathered_bytes(const Plan& plan, int world_rank) {
  const int stage = plan.stage_of_rank(world_rank), rank = plan.rank_in_stage(world_rank);
  Index elements = 0;
  for (const auto& bucket : plan.buckets) {
    const Index all = plan.elements(bucket, rank);
    const bool here = plan.replica_on(plan.layers[bucket.last()].group, stage) >= 0;
    if (here && !plan.is_second_copy(bucket, stage) && plan.share(bucket, rank).extent() != all) elements += all;
  }
  return elements * static_cast<Index>(plan.workload.optimizer.states().size());
}

}  // namespace

Index RunMemory::checkpoint_bytes(const Plan& plan, int rank, bool optimizer, bool saved) const {
  const Index element = size_of(master_dtype(plan.workload.dtype));
  Index largest = 0;
  for (const auto& layer : plan.layers)
    if (saved && plan.stage_running(layer.group) == plan.stage_of_rank(rank))
      for (const auto& rest : layer->rest)
        largest = std::max(largest, elements_to_write(rest.w, plan.rank_in_stage(rank), element, messages_.packs));
  return element * (largest + (optimizer ? gathered_bytes(plan, rank) : 0));
}

MemoryPeak RunMemory::peak(std::span<const DataPass> passes, const BesideTensors& beside, int rank, Saves saves,
                           bool loads) const {
  MemoryUse held = state_memory(plan(), rank);
  held[MemoryClass::shared] += beside.shared;
  held[MemoryClass::workspace] += beside.workspace;
  const bool collects = saves != Saves::never && beside.data;  // where the CPU has its tensors, it has a checkpoint's
  Index checkpoint = 0;
  if (saves != Saves::never || loads) checkpoint = checkpoint_bytes(plan(), rank, training_, collects);
  std::map<const Dataset*, Index> sets;  // a data set that is read twice holds what its larger pass needs
  Index order = 0;
  for (const auto& [data, training, augmentation] : passes) {
    if (!beside.data) continue;
    sets[data] = std::max(sets[data], data_bytes(*data, share(data->size(), training, rank), augmentation));
    order = std::max(order, order_bytes(data->size(), training));
  }
  for (const auto& [data, bytes] : sets) held[MemoryClass::data] += bytes;
  MemoryUse saving = held;
  saving[MemoryClass::workspace] += checkpoint;
  if (saves == Saves::anywhere) saving[MemoryClass::data] += order;
  MemoryPeak peak = holding(saving);
  for (const auto& [data, training, augmentation] : passes) {
    MemoryUse now = held;
    if (beside.data) {
      now[MemoryClass::data] += order_bytes(data->size(), training);
      MemoryUse listing = now;
      listing[MemoryClass::data] += list_bytes(*data, share(data->size(), training, rank));
      peak.include(holding(listing));
    }
    peak.include(pass_peak(data->size(), training, now, rank, !beside.data));
  }
  return peak;
}

}  // namespace partita
