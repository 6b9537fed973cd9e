#pragma once

#include "partita/strategies/planner/choose_products.hpp"
#include "strategies/planner/search_context.hpp"

#include <limits>

namespace partita {

/// Does what the public choose_products() does, with what the search has made before. Without `by_stage`, it chooses
/// for layers that are alike on all stages together alone, which takes less time by about the number of stages.
/// Nothing is chosen if the step would take `below` seconds or more even if the products, redistributions and gradient
/// sums of the open layers took no time.
ChosenProducts choose_products(const SearchContext& context, const Strategy& strategy, Index memory_limit,
                               bool by_stage, double below = std::numeric_limits<double>::infinity());

}  // namespace partita
