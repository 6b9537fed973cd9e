#pragma once

#include "partita/strategies/cost/estimate.hpp"
#include "strategies/plan/schedule_cache.hpp"

#include <functional>

namespace partita {

// What stages add to binding.

/// The entry of Strategy::stages() of every layer: its group. Throws Error, with the entry's place, for entries that do not
/// follow one another from the first layer to the last.
std::vector<int> groups_of_layers(const Model& model, const Strategy& strategy);

/// What a strategy asks of a schedule for training.
ScheduleRequest request_of(const Strategy& strategy, int stages, int microbatches);

/// The order of a step of so many microbatches. Throws Error for a kind that the stages do not fit.
Schedule bind_schedule(const Strategy& strategy, const std::vector<int>& places, const GroupGraph& graph,
                       int microbatches, bool training, ScheduleCache& made);

/// As bind(), among others that ask for the same schedules.
Plan bind(const Model& model, const Strategy& strategy, const Workload& workload, ScheduleCache& made);

/// The layers of a model for a batch that runs as one: no schedule, no buckets, and nothing asked of the model as a whole.
Plan bind_layers(const Model& model, const Strategy& strategy, const Workload& workload);

/// All layers of a strategy of several stages in one, for one microbatch: what place_stages cuts, whatever the schedule.
Plan bind_single_stage(const Model& model, const Strategy& strategy, const Workload& workload);

/// Stages that are placed, and the bytes that the fullest rank holds.
struct Placed {
  Strategy strategy;
  Index held = 0;
};
/// As `place_stages_nearest`, for a strategy of several stages without boundaries; `effort` is what the search may take, in actions that it
/// simulates. What is held is as StagePartitionCost counts it, without workspaces and without what passes.
Placed partition_stages(const Plan& uncut, const Strategy& strategy, const Workload& workload, const Machine& machine,
                        const KernelTimes& times, Index limit, double effort, ScheduleCache& made);

/// The same by what the stages do hold, which `held` says of a strategy: where that passes the limit, the search aims lower, a few times.
Placed partition_within_limit(const Plan& uncut, const Strategy& strategy, const Workload& workload,
                              const Machine& machine, const KernelTimes& times, Index limit, double effort,
                              ScheduleCache& made, const std::function<Index(const Strategy&)>& held);

/// Both replicas of a group of layers lie on grids of one shape: the ranks of one are those of the other. Throws Error if not.
void check_replica_grids(const Strategy& strategy);

/// Groups on the stages in the opposite order.
std::vector<int> reversed_stages(std::vector<int> places);

/// The same placement on another grid, for the axes that it has too, and for no others.
Layout same_placement(const Layout& layout, const Grid& grid);

}  // namespace partita
