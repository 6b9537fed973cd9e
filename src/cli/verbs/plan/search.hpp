#pragma once

#include "partita/strategies/planner/planner.hpp"
#include "src/cli/inputs/machine_files.hpp"
#include "src/cli/verbs/plan/plan_options.hpp"

#include <optional>
#include <string>
#include <vector>

namespace partita::cli {

/// The strategies that were found for a number of ranks, the fastest first, and what to know of the search.
struct Search {
  std::vector<Planned> found;
  std::vector<std::string> notes;
  std::optional<Planned> plain_pipeline;  ///< the fastest pipeline whose stages shard samples alone, if one was found
  bool ended_early = false;               ///< by --time-limit
};

/// Looks for strategies on `ranks` ranks as the options ask. What it returns has plain names of axes, the algorithms of
/// products that are fastest on the machine, and short rules. Each is priced as it is returned. Throws Error if nothing
/// runs, or if nothing fits into the memory limit; the message then says which changes would make the smallest one fit.
Search search(const PlanOptions& options, const Model& model, const Workload& workload, const MachineFiles& files,
              int ranks);

}  // namespace partita::cli
