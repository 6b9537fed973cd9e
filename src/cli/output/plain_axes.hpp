#pragma once

#include "partita/strategies/declare/strategy.hpp"

namespace partita::cli {

/// Returns the same strategy with axes named as a person would name them. Neighboring axes that all rules use together
/// become one axis. Each axis is named after the dimension of outputs that it shards: data (N), c (C), z (D), x (W) or
/// y (any other); p if it shards several dimensions. A number is added if the name is taken. Joining axes may change a
/// block by one element if an extent does not divide evenly. Returns the strategy unchanged if its groups have grids of
/// their own.
Strategy with_plain_axes(const Strategy& strategy);

}  // namespace partita::cli
