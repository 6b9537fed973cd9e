#pragma once

#include "partita/strategies/planner/planner.hpp"
#include "src/cli/inputs/machine_files.hpp"
#include "src/cli/verbs/plan/plan_options.hpp"

#include <string>
#include <vector>

namespace partita::cli {

/// The files' prefix of --out, or the default one.
std::string plan_prefix(const PlanOptions& options);
/// Throws Error if the files that will be written cannot be, or if one of the default prefix exists: the user did not
/// name the files that would be replaced.
void check_files(const PlanOptions& options);
/// Writes strategies to PREFIX-1.toml (the first), PREFIX-2.toml and so on. Returns the names of the files.
std::vector<std::string> write_strategies(const std::string& prefix, const std::vector<Planned>& found);
/// Prints the machine, and what to know of it and of the search.
void print_machine(const MachineFiles& files, const std::vector<std::string>& notes);

}  // namespace partita::cli
