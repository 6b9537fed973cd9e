#pragma once

#include "src/cli/verbs/compare/compare_options.hpp"

namespace partita::cli {

/// Runs `compare --ranks`: prices each strategy on each number of ranks, prints tables and where the fastest strategy
/// changes, and writes the points to --csv and --json. A point that does not fit in memory is priced and marked. Runs
/// without MPI. Returns the exit status. Throws AgreedError if no point fits.
int compare_curves(const CompareOptions& options, const ModelFactory& factory);

}  // namespace partita::cli
