#pragma once

#include "partita/strategies/planner/planner.hpp"
#include "src/cli/options/options.hpp"

#include <string>
#include <vector>

namespace partita::cli {

struct PlanOptions : Options {
  std::vector<int> rank_counts;              ///< numbers of ranks to plan for, ascending
  int best = 3;                              ///< number of strategies to write
  int examined = PlannerOptions().examined;  ///< number of candidates to bind and price exactly
  std::string out;                           ///< the prefix of the files to write; "" for none
  std::vector<std::string> kinds;            ///< pipeline schedules to try; not given: those of PlannerOptions
  bool keep_batch_norm = false;              ///< leave out strategies that change its statistics
  double time_limit = 0;                     ///< seconds after which the search ends; 0: none
  std::vector<std::string> why_not;          ///< rules to price with the best strategy
};

}  // namespace partita::cli
