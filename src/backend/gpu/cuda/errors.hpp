#pragma once

#include "src/backend/gpu/cuda/libraries/cublaslt.hpp"
#include "src/backend/gpu/cuda/libraries/cudnn.hpp"

#include <cuda_runtime.h>

#include <string_view>

// How calls of CUDA's libraries fail: with an Error, or a DeviceError during a run, that says what could not be done,
// and why.

namespace partita::cuda {

/// Throws Error or DeviceError if the call failed; `what` completes the sentence "CUDA cannot ...".
void check(cudaError_t code, std::string_view what);
void check(cublasStatus_t code, std::string_view what);
void check(cudnnStatus_t code, std::string_view what);

}  // namespace partita::cuda
