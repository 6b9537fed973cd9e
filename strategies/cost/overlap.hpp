#pragma once

#include "partita/strategies/plan/traffic.hpp"
#include "strategies/cost/cost_terms.hpp"

namespace partita {

/// Returns the computation of the operation `op` that hides a transfer of a layer that travels at that time; nothing if
/// none does.
std::optional<Computation> hides_behind(const LayerPlan& layer, const PlannedTraffic& item, const StepOp& op);

}  // namespace partita
