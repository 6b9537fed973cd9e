#include "strategies/cost/worst_ranks.hpp"

#include "partita/strategies/cost/estimate.hpp"
#include "strategies/cost/representatives.hpp"
#include "strategies/cost/symmetry.hpp"
#include "strategies/plan/memory_replay.hpp"
#include "strategies/plan/traffic.hpp"

#include <algorithm>

namespace partita {

namespace {

/// Calls visit(program, rank) for each examined rank of the world. Along the axes that first_alone returns, only ranks
/// with coordinate 0 are examined.
template <class Visit>
void each_examined(const Plan& plan, AxisSet (*first_alone)(const Plan&, int), Visit&& visit) {
  for (int stage = 0; stage < static_cast<int>(plan.grids.size()); ++stage) {
    const Grid& grid = plan.grids[stage];
    const AxisSet first = first_alone(plan, stage);
    const StepProgram program(plan, stage);
    for (const int rank : representatives(grid, irregular_axes(plan, stage) & ~first))
      if (representative_rank(grid, rank, first) == rank) visit(program, grid.first_rank() + rank);
  }
}

}  // namespace

FullestRank fullest_rank(const Plan& plan) {
  FullestRank fullest;
  each_examined(plan, first_is_fullest, [&](const StepProgram& program, int rank) {
    const MemoryPeak memory = replay_memory(program, rank, state_memory(plan, rank), {});
    if (memory.total > fullest.memory.total) fullest = {memory, rank};
  });
  return fullest;
}

MostTraffic most_traffic(const Plan& plan) {
  MostTraffic most;
  each_examined(plan, symmetric_axes, [&](const StepProgram& program, int rank) {
    const RankTraffic traffic = rank_traffic(program, rank);
    if (traffic.counted.bytes > most.traffic.bytes) most.traffic = traffic.counted;
    most.sent = std::max(most.sent, traffic.sent);
  });
  return most;
}

}  // namespace partita
