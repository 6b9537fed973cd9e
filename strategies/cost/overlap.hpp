#pragma once

#include "partita/strategies/plan/traffic.hpp"
#include "strategies/cost/cost_terms.hpp"

namespace partita {

/// The number of the pass whose computing hides a transfer of a layer (0 to 2: forward, backward data, backward filter), forward_again,
/// or -1 if nothing does. `split`: both gradients are actions of their own, so that dw does not follow dy's halo.
int hides_behind(const LayerPlan& layer, const PlannedTraffic& item, bool split);

}  // namespace partita
