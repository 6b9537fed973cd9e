#pragma once

#include "partita/strategies/plan/plan.hpp"

#include <string>
#include <vector>

namespace partita::cli {

/// Returns one line for each stage that has axes over which nothing is sharded, so that all ranks along them do the
/// same work. It names the axes and the rule that would use them.
std::vector<std::string> idle_axis_notes(const Plan& plan);

}  // namespace partita::cli
