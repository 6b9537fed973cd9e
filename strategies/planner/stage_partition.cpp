#include "partita/strategies/planner/stage_partition.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "strategies/plan/bind.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/schedule/generators.hpp"
#include "strategies/plan/stages.hpp"
#include "strategies/planner/stage_search.hpp"

#include <algorithm>
#include <optional>

namespace partita {

namespace {

PlacedStages place(const Model& model, const Strategy& strategy, const Workload& workload, const Machine& machine,
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
  PlacedStages one = place(model, strategy, workload, machine, times, limit);
  if (limit > 0 && one.held > limit)
    fail(
        "no partition of the model '{}' into {} stages was found that fits {} per rank; use more stages or ranks, or "
        "set recompute = true for some layers",
        model.name(), strategy.stage_count(), print_bytes(limit));
  return std::move(one.strategy);
}

Strategy place_stages_nearest(const Model& model, const Strategy& strategy, const Workload& workload,
                              const Machine& machine, const KernelTimes& times, Index limit) {
  return place(model, strategy, workload, machine, times, limit).strategy;
}

}  // namespace partita
