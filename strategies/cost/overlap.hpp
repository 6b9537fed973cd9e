#pragma once

#include "partita/strategies/plan/traffic.hpp"
#include "strategies/cost/cost_terms.hpp"

namespace partita {

/// Returns which computation hides a transfer of a layer, as LayerMovement::hidden_by: 0 for forward, 1 for backward
/// data, 2 for backward filter, recomputed_forward, or -1 for none. `split`: the gradients of x and w are separate
/// actions, so dw does not run during the halo exchange of dy.
int hides_behind(const LayerPlan& layer, const PlannedTraffic& item, bool split);

}  // namespace partita
