#pragma once

#include "partita/base/types.hpp"

#include <cuda_runtime.h>

namespace partita::cuda {

/// Throws Error if a kernel could not start.
void check_launch(cudaError_t error);
/// Throws Error if a kernel would have more blocks, sums or parts than a GPU can number.
void check_count(Index count, Index most);

}  // namespace partita::cuda
