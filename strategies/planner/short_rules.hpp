#pragma once

#include "partita/model/model.hpp"
#include "partita/strategies/declare/strategy.hpp"

namespace partita {

/// Returns the strategy with as few rules as a search finds: patterns of layer names in place of a rule for each layer.
/// Every layer keeps its settings; a word of a layout that a layer lacks does not count. Returns the strategy itself if
/// no shorter list was found, if some key has more than 64 different values, if the grids of its stages have different
/// axes, or if a pattern of its rules names an input, weights or an algorithm. Throws Error if a layout of the rules
/// cannot be parsed.
Strategy with_short_rules(const Model& model, const Strategy& strategy);

}  // namespace partita
