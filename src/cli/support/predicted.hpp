#pragma once

#include "src/cli/support/options.hpp"

#include <optional>

namespace partita::cli {

/// Returns the predicted seconds of a training step under the strategy, on the machine that --machine names, with the
/// batch and data type of the options. Returns nothing without --machine. Throws Error if the machine file cannot be
/// read or the strategy cannot be bound.
std::optional<double> predicted_seconds(const Model& model, const Strategy& strategy, const Options& options);

}  // namespace partita::cli
