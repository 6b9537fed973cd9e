#pragma once

#include "strategies/plan/stages.hpp"
#include "strategies/planner/search_context.hpp"
#include "strategies/planner/stage_cost.hpp"

#include <functional>
#include <string>
#include <vector>

namespace partita {

/// Number of simulated actions that take about half a second.
inline constexpr double affordable = 1 << 22;

struct FoundPartition {
  std::vector<int> ends;  ///< the pieces at which groups end
  Index held = 0;         ///< bytes on the fullest rank, as StagePartitionCost counts them
  Index least = 0;        ///< of these, those of weights, their gradients and the optimizer's state
};

/// Returns the stage partition with the shortest makespan on ranks that hold at most `limit` bytes (0: no limit); among
/// equal ones, the one that sends least. If no partition that was found fits, returns the one that exceeds the limit
/// least.
///
/// The result is exact if the schedules of all partitions together have at most `most` actions. Otherwise it comes from
/// a local search. The search starts from the partition whose slowest group is fastest (dynamic programming). It moves
/// one boundary to any position, or two boundaries by up to two pieces, as long as the work of the busiest stage falls,
/// and then as long as the makespan falls. It repeats this with some boundaries moved at random until `effort`, a
/// number of actions, is spent. Without a limit the result is therefore never slower than the starting partition.
FoundPartition search_partition(StagePartitionCost& price, Index limit, double most = affordable,
                                double effort = affordable);

/// Binds all layers of a strategy with several stages in one stage, for one microbatch. place_stages() partitions this
/// bound plan, whatever the schedule.
Plan bind_single_stage(const SearchContext& context, const Strategy& strategy);

/// A strategy with placed stages, and the bytes that the fullest rank holds.
struct PlacedStages {
  Strategy strategy;
  Index held = 0, least = 0;  ///< as FoundPartition has them
};

/// A strategy with several stages whose boundaries are not chosen. Its layers are priced once, for all limits.
class OpenStages {
 public:
  /// `single_stage` comes from bind_single_stage().
  /// @pre `context` outlives this object.
  OpenStages(const Plan& single_stage, const Strategy& strategy, const SearchContext& context);

  /// A lower bound of the seconds of a step, wherever the boundaries are and whatever the limit.
  double least_seconds() const { return price_.least_work(); }

  /// As place_stages_nearest(). `effort` is the number of actions that the search may simulate. The returned bytes are
  /// counted as in StagePartitionCost, without workspaces and temporary tensors.
  PlacedStages place(Index limit, double effort);
  /// The same, but the bytes are those that the stages really hold, which `held` returns for a strategy. If they exceed
  /// the limit, the search is repeated a few times with a lower limit. `held` is not asked for a strategy whose
  /// weights, gradients and state alone exceed the limit.
  PlacedStages place(Index limit, double effort, const std::function<Index(const Strategy&)>& held);

 private:
  Strategy strategy_;
  std::vector<std::string> names_;  // of the layers
  StagePartitionCost price_;
};

}  // namespace partita
