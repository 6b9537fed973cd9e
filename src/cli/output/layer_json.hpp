#pragma once

#include "partita/strategies/cost/estimate.hpp"
#include "src/cli/files/json.hpp"

namespace partita::cli {

/// Returns the predicted times of a layer, as `compare` and `explain` write them.
Json to_json(const LayerCost& cost);
/// Returns bytes by class of memory.
Json to_json(const MemoryUse& memory);

}  // namespace partita::cli
