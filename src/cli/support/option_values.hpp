#pragma once

#include "partita/model/layers.hpp"
#include "partita/train/run/trainer.hpp"

#include <string>

namespace partita::cli {

/// Reads the value of --batch-norm: synchronized, local or ranks=N. Throws Error for anything else.
BatchNorm parse_batch_norm(const std::string& text);
/// Reads the value of --on-nan: stop or skip. Throws Error for anything else.
OnNan parse_on_nan(const std::string& text);

}  // namespace partita::cli
