#pragma once

#include "partita/strategies/cost/estimate.hpp"

#include <string>
#include <vector>

namespace partita {

/// Why a group of layers has its layout: what a step would cost with the second-best one for all of them.
struct LayoutReason {
  std::string layout;               ///< e.g. "N@data C@c"; "replicated"; "derived" if no rule names one
  std::vector<std::string> layers;  ///< the layers whose rules ask for this layout, in the model's order
  std::string second;               ///< the second-best layout; "" if they can run in none of those tried
  StepCost cost{};                  ///< of a step in which these layers have it
  Strategy with{};                  ///< the strategy in which they have it
};

/// Returns the reasons for the layouts of a strategy, one for each layout that its rules ask for; none for one rank.
/// Tried are the layouts of the strategy's other groups, and those in which one axis of its grid, of at most 64 ranks,
/// shards another dimension or none. What the strategy says of the group's inputs, weights and algorithms is left open.
/// Throws Error as bind() and estimate() do for the strategy itself.
/// @pre Stage boundaries are placed (place_stages).
std::vector<LayoutReason> layout_reasons(const Model& model, const Strategy& strategy, const Workload& workload,
                                         const Machine& machine, const KernelTimes& times = KernelTimes());

}  // namespace partita
