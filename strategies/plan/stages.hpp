#pragma once

#include "partita/strategies/plan/bind.hpp"
#include "strategies/plan/schedule_cache.hpp"

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

/// Both replicas of a group of layers lie on grids of one shape: the ranks of one are those of the other. Throws Error if not.
void check_replica_grids(const Strategy& strategy);

/// Groups on the stages in the opposite order.
std::vector<int> reversed_stages(std::vector<int> places);

/// The same placement on another grid, for the axes that it has too, and for no others.
Layout same_placement(const Layout& layout, const Grid& grid);

}  // namespace partita
