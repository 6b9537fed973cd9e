#pragma once

#include "partita/strategies/plan/bind.hpp"
#include "strategies/plan/schedule_cache.hpp"

namespace partita {

// The parts of binding that concern stages.

/// Returns the group of every layer, as the entries of Strategy::groups() say. Throws Error with the entry's place if
/// the entries do not follow one another from the first layer to the last.
std::vector<int> groups_of_layers(const Model& model, const Strategy& strategy);

/// Returns the request for the training schedule of a strategy.
ScheduleRequest request_of(const Strategy& strategy, int stages, int microbatches);

/// Returns the schedule of a step of `microbatches` microbatches. Throws Error if the stages do not fit the kind of
/// schedule.
Schedule bind_schedule(const Strategy& strategy, const std::vector<int>& places, const GroupGraph& graph,
                       int microbatches, bool training, ScheduleCache& made);

/// Throws Error unless both replicas of each group of layers are on grids of the same shape: each rank is paired with
/// the rank that has the same coordinates.
void check_replica_grids(const Strategy& strategy);

/// Returns the stage of each group, with the stages in the opposite order.
std::vector<int> reversed_stages(std::vector<int> places);

/// Returns the same placement on another grid. Axes that the other grid lacks are dropped.
Layout same_placement(const Layout& layout, const Grid& grid);

}  // namespace partita
