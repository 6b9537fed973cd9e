#pragma once

#include "src/cli/support/options.hpp"

namespace partita::cli {

/// Runs the verb `simulate`, which needs one process only, and returns the exit status.
int simulate(const Options& options, const ModelFactory& factory);

}  // namespace partita::cli
