#pragma once

#include "src/train/executor/parameters.hpp"

namespace partita {

/// Throws RunFailed, alike on every rank, unless all ranks that hold the same elements of a weight or of a state of the
/// optimizer hold the same bits. The message names the first such weight, two ranks and the number of steps done. Only
/// hashes travel, over `world`. Collective: every rank of `world` calls it.
void check_replicas(const Plan& plan, Parameters& parameters, Communicator& world, Index steps);

}  // namespace partita
