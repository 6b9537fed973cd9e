#pragma once

#include "strategies/planner/search_context.hpp"

#include <functional>
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

/// Moves layers that are alike, one class after the other, to a layout that layers of another layout have: a linear
/// layer that sums over ranks into rows, say, which the search does not see since it estimates layers whose inputs have
/// their output's pattern. `take` is given each strategy that can run, and returns true if it replaces the one before.
void move_classes(const SearchContext& context, Strategy strategy,
                  const std::function<bool(const Strategy&, const Plan&)>& take);

}  // namespace partita
