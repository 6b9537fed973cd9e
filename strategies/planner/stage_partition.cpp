#include "partita/strategies/planner/stage_partition.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/schedule/generators.hpp"
#include "strategies/cost/worst_ranks.hpp"
#include "strategies/plan/bind.hpp"
#include "strategies/plan/stages.hpp"
#include "strategies/planner/stage_search.hpp"

#include <algorithm>
#include <optional>

namespace partita {

namespace {

PlacedStages place(const SearchContext& context, const Strategy& strategy, Index limit) {
  if (strategy.stage_count() == 1) return {strategy};
  const Plan single_stage = bind_single_stage(context, strategy);
  OpenStages stages(single_stage, strategy, context);
  if (limit == 0) return stages.place(0, affordable);
  const auto held = [&](const Strategy& one) { return fullest_rank(context.bind(one)).memory.total; };
  return stages.place(limit, affordable, held);
}

}  // namespace

Strategy place_stages(const Model& model, const Strategy& strategy, const Workload& workload, const Machine& machine,
                      const KernelTimes& times, Index limit) {
  const Machine here = machine.shared_by(strategy.ranks());
  PlacedStages one = place({model, workload, here, times}, strategy, limit);
  if (limit > 0 && one.held > limit)
    fail(
        "no partition of the model '{}' into {} stages was found that fits {} per rank; use more stages or ranks, or "
        "set recompute = true for some layers",
        model.name(), strategy.stage_count(), print_bytes(limit));
  return std::move(one.strategy);
}

Strategy place_stages_nearest(const Model& model, const Strategy& strategy, const Workload& workload,
                              const Machine& machine, const KernelTimes& times, Index limit) {
  const Machine here = machine.shared_by(strategy.ranks());
  return place({model, workload, here, times}, strategy, limit).strategy;
}

}  // namespace partita
