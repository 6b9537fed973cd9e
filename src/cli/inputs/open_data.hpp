#pragma once

#include "src/cli/options/train_options.hpp"

#include <memory>

namespace partita::cli {

/// Opens the training or the test part of the data set that the options name. Throws Error if it does not match the
/// model.
std::unique_ptr<Dataset> open_data(const TrainOptions& options, const Model& model, bool training);

}  // namespace partita::cli
