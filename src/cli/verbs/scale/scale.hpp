#pragma once

#include "src/cli/support/options.hpp"

namespace partita::cli {

/// Runs the verb `scale`: trains under several strategies on several rank counts, each in a job of its own that mpiexec
/// starts, and prints how the speed scales. It has options of its own beside those of `train`. Returns the exit status.
int scale(int argc, char** argv, const Program& program);

}  // namespace partita::cli
