#pragma once

#include "partita/strategies/plan/traffic.hpp"
#include "strategies/cost/cost_terms.hpp"

#include <span>

namespace partita {

/// Returns which computation hides a transfer of a layer, as LayerMovement::hidden_by: 0 for forward, 1 for backward
/// data, 2 for backward filter, recomputed_forward, or -1 for none. `next` are the operations of the layer's action
/// that follow the one that starts the transfer.
int hides_behind(const LayerPlan& layer, const PlannedTraffic& item, std::span<const StepOp> next);

}  // namespace partita
