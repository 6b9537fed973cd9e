#pragma once

#include "partita/strategies/declare/strategy.hpp"
#include "strategies/planner/checkpointing.hpp"

#include <string>
#include <vector>

namespace partita::test {

/// The strategy with its microbatches doubled repeatedly, each also with a sharded optimizer, with recomputation of all
/// layers except `kept`, and with both.
inline std::vector<Strategy> variants(const Strategy& strategy, Index most, const std::vector<std::string>& kept) {
  std::vector<Strategy> all;
  for (int microbatches = strategy.microbatches(); microbatches <= most; microbatches *= 2)
    for (const bool recompute : {false, true})
      for (const auto update : {Strategy::OptimizerState::replicated, Strategy::OptimizerState::sharded}) {
        Strategy one = strategy;
        if (microbatches > 1)
          one.schedule(strategy.schedule() == ScheduleKind::single ? ScheduleKind::one_f_one_b : strategy.schedule(),
                       microbatches);
        if (recompute) one = recomputing(one, kept);
        all.push_back(one.optimizer_state(update));
      }
  return all;
}

}  // namespace partita::test
