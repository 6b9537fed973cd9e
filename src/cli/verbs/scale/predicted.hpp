#pragma once

#include "src/cli/options/options.hpp"

#include <optional>

namespace partita::cli {

/// A predicted training step.
struct PredictedStep {
  double seconds = 0;
  int measured_layers = 0, layers = 0;  ///< layers whose kernel times were measured, and all layers
};

/// Returns the predicted training step under the strategy, on the machine that --machine names, with the
/// batch and data type of the options. Returns nothing without --machine. Throws Error if the machine file cannot be
/// read or the strategy cannot be bound.
std::optional<PredictedStep> predicted_step(const Model& model, const Strategy& strategy, const Options& options);

}  // namespace partita::cli
