#pragma once

#include "strategies/planner/stage_cost.hpp"

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

}  // namespace partita
