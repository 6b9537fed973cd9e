#include "strategies/cost/worst_ranks.hpp"

#include "partita/strategies/cost/estimate.hpp"
#include "strategies/cost/representatives.hpp"
#include "strategies/cost/symmetry.hpp"
#include "strategies/plan/memory_replay.hpp"
#include "strategies/plan/traffic.hpp"

#include <algorithm>

namespace partita {

WorstRanks worst_ranks(const Plan& plan) {
  WorstRanks worst;
  for (int stage = 0; stage < static_cast<int>(plan.grids.size()); ++stage) {
    const Grid& grid = plan.grids[stage];
    const AxisSet symmetric = symmetric_axes(plan, stage);
    const StepProgram program(plan, stage);
    for (const int grid_rank : representatives(grid, irregular_axes(plan, stage))) {
      if (representative_rank(grid, grid_rank, symmetric) != grid_rank) continue;
      const int rank = grid.first_rank() + grid_rank;
      if (const MemoryPeak memory = replay_memory(program, rank, state_memory(plan, rank), {});
          memory.total > worst.memory.total) {
        worst.memory = memory;
        worst.memory_rank = rank;
      }
      const RankTraffic traffic = rank_traffic(program, rank);
      if (traffic.counted.bytes > worst.traffic.bytes) worst.traffic = traffic.counted;
      worst.sent = std::max(worst.sent, traffic.sent);
    }
  }
  return worst;
}

}  // namespace partita
