#pragma once

#include "partita/strategies/plan/traffic.hpp"
#include "strategies/plan/step.hpp"

namespace partita {

/// Returns rank_traffic(plan, rank) with the operations of the rank's stage, which all its ranks share.
RankTraffic rank_traffic(const StepProgram& program, int rank);

}  // namespace partita
