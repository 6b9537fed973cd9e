#pragma once

#include "src/cli/options/train_options.hpp"

namespace partita::cli {

/// Writes the script of --slurm, whose job trains on `ranks` ranks, or on those of the strategy if that is 0. Throws
/// Error if the strategy is for another number, or the script cannot be written.
void write_batch_script(const TrainOptions& options, int ranks);

}  // namespace partita::cli
