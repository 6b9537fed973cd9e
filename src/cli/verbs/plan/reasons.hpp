#pragma once

#include "partita/strategies/planner/planner.hpp"
#include "src/cli/inputs/machine_files.hpp"
#include "src/cli/verbs/plan/search.hpp"

#include <string>
#include <vector>

namespace partita::cli {

/// Returns what a strategy cuts, and its stages, grid, microbatches and number of rules in words.
std::string describe(const Model& model, const Strategy& strategy);

/// Returns how much longer a step takes than another, and the parts that differ most: "+4.2 %, halo +0.012 ms, ...".
std::string difference(const StepCost& with, const StepCost& without);

/// Prints why the first strategy of a search is as it is: the second-best layout of each group of its layers, the plain
/// strategies beside it, and whether it stays the best if the machine is another. `names` are the strategies' files.
/// What holds more than `limit` bytes gets a remark; 0 is no limit.
void print_reasons(const Search& search, const std::vector<std::string>& names, const Model& model,
                   const Workload& workload, const MachineFiles& files, int ranks, Index limit);

}  // namespace partita::cli
