#pragma once

#include "partita/backend/cuda.hpp"

#include <span>
#include <string>
#include <vector>

namespace partita {

// What cuDNN can do on a card. A build without CUDA has these functions too.

/// True if the backend applies the activation while it computes a convolution, where cuDNN has an engine for both.
bool cuda_fuses(const Activation& f);

/// Returns those convolutions, on tensors of their own, for which cuDNN has no engine that CudaOptions allow: they run
/// in kernels of our own. `properties` describe the card, as JSON; "" stands for the first card of this machine.
/// Throws Error if there is none, or if this build lacks CUDA.
std::vector<ConvProblem> convolutions_beside_cudnn(std::span<const ConvProblem> problems, const CudaOptions& options,
                                                   const std::string& properties);

}  // namespace partita
