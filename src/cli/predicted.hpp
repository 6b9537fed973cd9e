#pragma once

#include "options.hpp"

#include <optional>

namespace partita::cli {

/// Seconds that a training step takes under the strategy, with the options' batch and data type; nothing where no model
/// of the machine's cost is there to say it.
std::optional<double> predicted_seconds(const Model& model, const Strategy& strategy, const Options& options);

}  // namespace partita::cli
