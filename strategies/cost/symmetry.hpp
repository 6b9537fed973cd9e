#pragma once

#include "partita/strategies/plan/plan.hpp"

#include <cstddef>

namespace partita {

/// True if two layers of one stage have the same operator, layouts, redistributions and recomputation, and neither
/// sends to other stages. They then cost the same on every rank, except for the gradient sums that they complete. The
/// windows of halos are not compared: equal operators have equal ones, which is a duty of Operator::describe().
bool equivalent_cost(const LayerPlan& a, const LayerPlan& b);

/// A hash consistent with equivalent_cost(). It is cheap to compute.
std::size_t cost_hash(const LayerPlan& layer);

/// Returns the axes along which all ranks have blocks of the same extents and send the same messages, except for the
/// receivers. Each coordinate of such an axis has an equal share, and the shares do not interact.
AxisSet symmetric_axes(const LayerPlan& layer);

/// Returns the axes along which blocks differ and ranks exchange parts of them. What a rank sends then does not follow
/// from its place at the ends or inside: where blocks do not match, an inner rank may send more than another. A layer
/// with products has such axes on grids of at most 64 ranks only, because panels of more ranks take long to plan.
AxisSet irregular_axes(const LayerPlan& layer);

/// Returns the axes that are irregular for a layer of a stage, in either size of microbatch.
AxisSet irregular_axes(const Plan& plan, int stage);

/// Returns the axes along which all ranks hold, and update, equally many elements of a bucket.
AxisSet symmetric_axes(const Plan& plan, const Bucket& bucket);

/// Returns the axes along which all ranks of both stages send and receive as much of a layer's output.
AxisSet symmetric_axes(const StageBoundary& boundary);

/// Returns the axes that are symmetric for all layers, buckets and stage boundaries of a stage. Along these axes, no
/// coordinate sends more to other stages than the first one. Returns no axes if the plan has two replicas.
AxisSet symmetric_axes(const Plan& plan, int stage);

/// Returns the axes along which no rank of a stage holds more than the one with the first coordinate, whose blocks and
/// shares are the largest. These are all axes but those of halos, of rings and of products in which panels travel.
AxisSet first_is_fullest(const Plan& plan, int stage);

}  // namespace partita
