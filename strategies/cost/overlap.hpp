#pragma once

#include "partita/strategies/plan/traffic.hpp"
#include "strategies/cost/cost_terms.hpp"

namespace partita {

/// Returns which computation of the operation `op` hides a transfer of a layer that travels at that time, as
/// LayerMovement::hidden_by: 0 for forward, 1 for backward data, 2 for backward filter, recomputed_forward, or -1 for
/// none.
int hides_behind(const LayerPlan& layer, const PlannedTraffic& item, const StepOp& op);

}  // namespace partita
