#pragma once

#include "strategies/planner/search_context.hpp"

#include <string>
#include <vector>

namespace partita {

/// Layers whose rules ask for the same layout.
struct LayoutGroup {
  std::string layout;               ///< without dimensions that none of the layers has; "" if nothing is sharded
  bool derived = false;             ///< no rule names a layout
  std::vector<std::size_t> layers;  ///< by number, ascending
};

/// A strategy in which the layers of one group have another layout, and its price.
struct LayoutAlternative {
  std::size_t group = 0;
  std::string layout;
  Strategy strategy;
  StepCost cost;
};

/// The groups of a strategy, and the fastest alternatives that can run, the fastest first: of each group the best one,
/// and all that are faster than the strategy.
struct LayoutAlternatives {
  std::vector<LayoutGroup> groups;
  std::vector<LayoutAlternative> all;
};

/// Prices other layouts of a strategy, as layout_reasons() describes.
LayoutAlternatives layout_alternatives(const SearchContext& context, const Strategy& strategy);

}  // namespace partita
