#pragma once

#include "partita/backend/backend.hpp"
#include "partita/comm/communicator.hpp"

#include <memory>

namespace partita {

/// Where a rank computes: its tensors lie in the memory of `device`, its kernels are those of `backend`, and tensors
/// travel by `between`. Gradients are summed by `gradients`; so that halos need not wait for them, it has a stream of
/// its own on a device. What ranks agree on, samples and checkpoints stay in the memory of the CPU.
struct Processor {
  Device& device;                                    ///< outlives every trainer that uses it
  std::shared_ptr<Communicator> between, gradients;  ///< the trainer's ranks, for buffers on their devices
  std::unique_ptr<Backend> backend;
};

/// Returns the processor of a rank whose tensors lie in the memory of the CPU.
/// @pre `world` outlives it.
inline Processor cpu_processor(Communicator& world, std::unique_ptr<Backend> backend) {
  const auto ranks = borrow(world);
  return {host_device(), ranks, ranks, std::move(backend)};
}

}  // namespace partita
