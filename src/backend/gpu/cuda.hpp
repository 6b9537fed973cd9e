#pragma once

#include "partita/backend/cuda.hpp"

#include <span>
#include <string>
#include <vector>

namespace partita {

// What cuDNN can do on a card. A build without CUDA has these functions too.

/// True if the backend applies the activation while it computes a convolution, where cuDNN has an engine for both.
bool cuda_fuses(const Activation& f);

/// How cuDNN runs a convolution.
struct CudnnUse {
  bool runs = false;     ///< an engine that CudaOptions allow, if need be on a part of the batch; else our own kernel
  bool limited = false;  ///< the engine that cuDNN expects to be the fastest needs more workspace than there is
  Index workspace = 0;   ///< bytes that this engine needs
};
/// Returns this for convolutions on tensors of their own. `properties` describe the card, as JSON; "" stands for the
/// first card of this machine. Throws Error if there is none, or if this build lacks CUDA.
std::vector<CudnnUse> cudnn_uses(std::span<const ConvProblem> problems, const CudaOptions& options,
                                 const std::string& properties);

}  // namespace partita
