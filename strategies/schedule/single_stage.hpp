#pragma once

#include "partita/strategies/schedule/simulate.hpp"

#include <utility>
#include <vector>

namespace partita {

/// Returns when a single stage ends and how long it is busy, in seconds. A single stage never waits for another. The
/// arithmetic is that of simulate().
inline std::pair<double, double> run_single_stage(const std::vector<Action>& actions, const ScheduleTimes& times) {
  double now = 0, busy = 0;
  for (const Action& action : actions) {
    if (action.is_transfer()) continue;
    const double end = now + times.of(action);
    busy += end - now;
    now = end;
  }
  return {now, busy};
}

}  // namespace partita
