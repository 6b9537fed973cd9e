#pragma once

#include "partita/strategies/declare/strategy.hpp"

namespace partita::cli {

/// The same strategy with axes as a person would name them. Axes that no rule takes apart become one, and each is called after the one
/// dimension that it cuts: data (N), c (C), z (D), x (W) or y (any other); p where it cuts several; with a number where the name is
/// taken. Blocks of extents that do not divide evenly may differ by one element. Strategies with stages on grids of their own, or
/// with rules of more than outputs, are returned as they are.
Strategy with_plain_axes(const Strategy& strategy);

}  // namespace partita::cli
