#pragma once

#include "src/cli/support/options.hpp"

#include <optional>

namespace partita::cli {

/// Seconds that a training step takes under the strategy on the machine that --machine names, with the options' batch and data
/// type; nothing where none is named. Throws Error for a machine that cannot be read, and where the strategy cannot be bound.
std::optional<double> predicted_seconds(const Model& model, const Strategy& strategy, const Options& options);

}  // namespace partita::cli
