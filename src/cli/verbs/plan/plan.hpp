#pragma once

#include "src/cli/support/options.hpp"

namespace partita::cli {

/// Runs the verb `plan`, which needs one process only, and returns the exit status.
int plan(const Options& options, const ModelFactory& factory);

}  // namespace partita::cli
