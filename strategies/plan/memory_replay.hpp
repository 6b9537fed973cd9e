#pragma once

#include "partita/strategies/plan/memory.hpp"

namespace partita {

/// Returns the peak memory of `rank` (of the world) in a step. It replays the operations of the step (step.hpp) and
/// counts the bytes of each buffer. `held` is what the rank holds during the whole step.
MemoryPeak replay_memory(const Plan& plan, int rank, const MemoryUse& held);

}  // namespace partita
