#pragma once

#include "partita/strategies/plan/plan.hpp"

namespace partita {

/// What a rank of the world puts on the network for one microbatch of a layer of a plan's, without what goes to other stages.
std::vector<PlannedTraffic> traffic_in_stage(const Plan& plan, const LayerPlan& layer, int rank);

/// The elements of a bucket's flat buffer on a rank of its stage: Plan::offsets' last.
Index elements(const Plan& plan, const Bucket& bucket, int rank);

}  // namespace partita
