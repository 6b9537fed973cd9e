#include "partita/strategies/planner/stage_partition.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/schedule/generators.hpp"
#include "strategies/plan/stages.hpp"
#include "strategies/planner/stage_search.hpp"

#include <algorithm>
#include <optional>

namespace partita {

namespace {

/// The strategy without its stages: one runs all layers.
Strategy in_one_stage(const Strategy& strategy) {
  Strategy alone = strategy;
  return alone.stages(1).schedule(ScheduleKind::single, 1);
}

Strategy with_ends(const Strategy& strategy, const std::vector<std::string>& names, const std::vector<int>& ends) {
  Strategy named = strategy;
  named.stages(1);
  int first = 0;
  for (const int end : ends) {
    named.group({names[static_cast<std::size_t>(first)], names[static_cast<std::size_t>(end) - 1]});
    first = end;
  }
  return named;
}

Placed placed(const Model& model, const Strategy& strategy, const Workload& workload, const Machine& machine,
              const KernelTimes& times, Index limit) {
  if (strategy.stage_count() == 1) return {strategy};
  ScheduleCache made;
  const Plan uncut = bind_single_stage(model, strategy, workload);
  if (limit == 0) return partition_stages(uncut, strategy, workload, machine, times, 0, affordable, made);
  return partition_within_limit(
      uncut, strategy, workload, machine, times, limit, affordable, made,
      [&](const Strategy& one) { return estimate(bind(model, one, workload, made), machine, times).memory.total; });
}

}  // namespace

Strategy place_stages(const Model& model, const Strategy& strategy, const Workload& workload, const Machine& machine,
                      const KernelTimes& times, Index limit) {
  Placed one = placed(model, strategy, workload, machine, times, limit);
  if (limit > 0 && one.held > limit)
    fail(
        "no way that was found to cut the model '{}' into {} stages fits {} a rank; use more stages or ranks, or give "
        "layers recompute = true",
        model.name(), strategy.stage_count(), print_bytes(limit));
  return std::move(one.strategy);
}

Strategy place_stages_nearest(const Model& model, const Strategy& strategy, const Workload& workload,
                              const Machine& machine, const KernelTimes& times, Index limit) {
  return placed(model, strategy, workload, machine, times, limit).strategy;
}

Plan bind_single_stage(const Model& model, const Strategy& strategy, const Workload& workload) {
  const auto groups = strategy.stages_of_groups().size(), layers = model.layers().size();
  if (groups > layers)
    fail("the model '{}' has {} layers, too few for {} stages of {} {} of layers each", model.name(), layers,
         strategy.stage_count(), strategy.groups_per_stage(), strategy.groups_per_stage() == 1 ? "group" : "groups");
  const Index microbatches = std::min<Index>(strategy.microbatches(), workload.batch);
  Workload one = workload;
  one.batch = (workload.batch + microbatches - 1) / microbatches;
  return bind(model, in_one_stage(strategy), one);
}

Placed partition_stages(const Plan& uncut, const Strategy& strategy, const Workload& workload, const Machine& machine,
                        const KernelTimes& times, Index limit, double effort, ScheduleCache& made) {
  const auto microbatches = static_cast<int>(std::min<Index>(strategy.microbatches(), workload.batch));
  std::vector<std::string> names;
  for (const auto& layer : uncut.layers) names.push_back(layer.name);
  StagePartitionCost price(uncut, machine, times, request_of(strategy, strategy.stage_count(), microbatches), made);
  const FoundPartition cut = search_partition(price, limit, effort, effort);
  return {with_ends(strategy, names, cut.ends), cut.held};
}

Placed partition_within_limit(const Plan& uncut, const Strategy& strategy, const Workload& workload,
                              const Machine& machine, const KernelTimes& times, Index limit, double effort,
                              ScheduleCache& made, const std::function<Index(const Strategy&)>& held) {
  constexpr int most = 4;  // tries
  std::optional<Placed> least;
  Index aim = limit;
  int tries = 0;
  do {
    Placed next = partition_stages(uncut, strategy, workload, machine, times, aim, effort, made);
    const Index counted = next.held;
    const Index now = next.held = held(next.strategy);
    if (!least || now < least->held) least = std::move(next);
    if (now <= limit || counted > aim) break;  // it fits, or none is counted as less
    aim = std::min(aim - (now - limit), counted - 1);
  } while (++tries < most && aim > 0);
  return std::move(*least);
}

Strategy close_boundaries(const Strategy& strategy, const std::vector<LayerPlan>& layers) {
  std::vector<std::string> names;
  std::vector<int> ends;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    names.push_back(layers[i].name);
    if (i + 1 == layers.size() || layers[i + 1].group != layers[i].group) ends.push_back(static_cast<int>(i) + 1);
  }
  return with_ends(strategy, names, ends);
}

}  // namespace partita
