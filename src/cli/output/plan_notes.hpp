#pragma once

#include "partita/strategies/plan/plan.hpp"

#include <string>
#include <utility>
#include <vector>

namespace partita::cli {

/// Returns what a user would hardly want of a plan, a line each: axes of a stage over which nothing is sharded, so that
/// all ranks along them do the same work; a stage that recomputes everything for a single microbatch; and statistics of
/// batch normalization over a part of the samples.
std::vector<std::string> plan_notes(const Plan& plan);

/// Returns how many ranks have no samples, and of how many: in the layer whose samples are cut into the fewest parts.
std::pair<Index, Index> idle_ranks(const Plan& plan);
/// Returns the note that ranks are idle because there are fewer samples than parts; "" if no rank is.
std::string idle_ranks_note(const Plan& plan);

}  // namespace partita::cli
