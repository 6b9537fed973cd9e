#pragma once

#include "partita/base/types.hpp"

namespace partita::cuda {

/// Throws Error if the kernel that was started last could not start.
void check_launch();
/// Throws Error if a kernel would have more blocks, sums or parts than a GPU can number.
void check_count(Index count, Index most);

}  // namespace partita::cuda
