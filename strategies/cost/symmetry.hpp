#pragma once

#include "partita/strategies/plan/plan.hpp"

#include <cstddef>

namespace partita {

/// True if two layers of one stage cost the same on every rank, but for the sums that they complete: same operator, same
/// layouts, same ways between them.
bool equivalent_cost(const LayerPlan& a, const LayerPlan& b);

/// Equal for layers that are alike, and soon found.
std::size_t cost_hash(const LayerPlan& layer);

/// The axes along which ranks differ in no block's extents and in nothing that they send, but for whom they send it to:
/// each coordinate has an equal share of what does not meet the others' shares.
AxisSet symmetric_axes(const LayerPlan& layer);

/// The axes along which all ranks hold as much of a bucket, and update as much of it.
AxisSet symmetric_axes(const Plan& plan, const Bucket& bucket);

/// Those of all layers and buckets of a stage, and of what crosses to others or comes from them, of which the first coordinate sends
/// most; none where there are two replicas.
AxisSet symmetric_axes(const Plan& plan, int stage);

}  // namespace partita
