#pragma once

#include "partita/strategies/plan/traffic.hpp"
#include "strategies/plan/step.hpp"

#include <functional>

namespace partita {

/// Returns rank_traffic(plan, rank) with the operations of the rank's stage, which all its ranks share.
RankTraffic rank_traffic(const StepProgram& program, int rank);

/// Calls visit(item) for all that the rank, of the program's stage, sends in a step. What a layer sends at several
/// times of the step comes in several items.
void each_traffic(const StepProgram& program, int rank, const std::function<void(const PlannedTraffic&)>& visit);

}  // namespace partita
