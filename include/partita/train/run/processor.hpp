#pragma once

#include "partita/backend/backend.hpp"
#include "partita/comm/communicator.hpp"

#include <memory>

namespace partita {

/// Where a rank computes: its tensors lie in the memory of `device`, its kernels are those of `backend`, and tensors
/// travel by `between`. What ranks agree on, samples and checkpoints stay in the memory of the CPU.
struct Processor {
  Device& device;                         ///< outlives every trainer that uses it
  std::shared_ptr<Communicator> between;  ///< the same ranks as the trainer's, for buffers on their devices
  std::unique_ptr<Backend> backend;
};

}  // namespace partita
