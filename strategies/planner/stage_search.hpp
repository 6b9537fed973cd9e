#pragma once

#include "strategies/plan/stages.hpp"
#include "strategies/planner/stage_cost.hpp"

#include <functional>

namespace partita {

/// So many simulated actions take about half a second.
inline constexpr double affordable = 1 << 22;

struct FoundPartition {
  std::vector<int> ends;  ///< of groups
  Index held = 0;         ///< bytes on the fullest rank, as StagePartitionCost counts them
};

/// Where groups end, for the least makespan on ranks that hold `limit` bytes (0: any); of equal ones that which sends least. Exact, if
/// the schedules of all cuts have `most` actions together or fewer. Else local search: from the cut whose slowest group takes least
/// (dynamic programming), boundaries move, one to any place or two by up to two layers, as long as the stage that works longest gains by
/// it, then as long as the makespan does; then again with some of them elsewhere, as long as that is affordable. So without a limit
/// it is never slower than that cut; `effort` is what that may take, in actions. If no cut that was found fits,
/// the one that passes the limit least.
FoundPartition search_partition(StagePartitionCost& price, Index limit, double most = affordable,
                                double effort = affordable);

/// All layers of a strategy of several stages in one, for one microbatch: what place_stages cuts, whatever the schedule.
Plan bind_single_stage(const Model& model, const Strategy& strategy, const Workload& workload);

/// Stages that are placed, and the bytes that the fullest rank holds.
struct PlacedStages {
  Strategy strategy;
  Index held = 0;
};
/// As `place_stages_nearest`, for a strategy of several stages without boundaries; `effort` is what the search may take, in actions that it
/// simulates. What is held is as StagePartitionCost counts it, without workspaces and without what passes.
PlacedStages partition_stages(const Plan& uncut, const Strategy& strategy, const Workload& workload,
                              const Machine& machine, const KernelTimes& times, Index limit, double effort,
                              ScheduleCache& made);

/// The same by what the stages do hold, which `held` says of a strategy: where that passes the limit, the search aims lower, a few times.
PlacedStages partition_within_limit(const Plan& uncut, const Strategy& strategy, const Workload& workload,
                                    const Machine& machine, const KernelTimes& times, Index limit, double effort,
                                    ScheduleCache& made, const std::function<Index(const Strategy&)>& held);

}  // namespace partita
