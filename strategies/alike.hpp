#pragma once

#include "partita/strategies/plan.hpp"

namespace partita {

/// True if two layers of one stage cost the same on every rank, but for the sums that they complete: same operator, same
/// layouts, same ways between them.
bool alike(const LayerPlan& a, const LayerPlan& b);

/// The axes along which ranks differ in no block's extents and in nothing that they send, but for whom they send it to:
/// each coordinate has an equal share of what does not meet the others' shares.
AxisSet even_axes(const LayerPlan& layer);

/// The same of all of a plan with one stage; none for one with several.
AxisSet even_axes(const Plan& plan);

/// The rank with coordinate 0 along some axes, and `rank`'s along all others.
int without(const Grid& grid, int rank, AxisSet axes);

}  // namespace partita
