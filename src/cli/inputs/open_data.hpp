#pragma once

#include "src/cli/options/train_options.hpp"

#include <functional>
#include <memory>

namespace partita::cli {

/// Opens the training or the test part of the data set that the options name. `encoding` is called while a text is
/// encoded, with the bytes that are done, and all. Throws Error if the data set does not match the model.
std::unique_ptr<Dataset> open_data(const TrainOptions& options, const Model& model, bool training,
                                   const std::function<void(Index done, Index all)>& encoding = {});

}  // namespace partita::cli
