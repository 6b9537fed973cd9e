#pragma once

#include "src/cli/inputs/machine_files.hpp"
#include "src/cli/verbs/plan/plan_options.hpp"

#include <string>

namespace partita::cli {

/// Plans for each number of ranks of --ranks, writes what is found to PREFIX-RANKS-1.toml and so on, and prints one
/// line for the best on each. What stops one number is noted there. Throws Error if nothing is found on any.
void plan_curve(const PlanOptions& options, const Model& model, const Workload& workload, const MachineFiles& files,
                const std::string& prefix);

}  // namespace partita::cli
