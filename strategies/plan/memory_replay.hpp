#pragma once

#include "partita/strategies/plan/memory.hpp"
#include "strategies/plan/step.hpp"

namespace partita {

/// Returns the peak memory of `rank` (of the world) in a step of its stage. It replays the operations of the step
/// (step.hpp) and counts the bytes of each buffer. `held` is what the rank holds during the whole step. Actions that
/// repeat others (StepProgram::repeated) are left out, unless `all` are asked for: the result is the same.
MemoryPeak replay_memory(const StepProgram& program, int rank, const MemoryUse& held, const MessageMemory& messages,
                         bool all = false);
/// Returns taken_memory() (memory.hpp), by the same replay.
Index replay_taken(const StepProgram& program, int rank, const MemoryUse& held, const MessageMemory& messages,
                   bool all = false);

}  // namespace partita
