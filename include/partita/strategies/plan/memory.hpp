#pragma once

#include "partita/base/memory.hpp"
#include "partita/strategies/plan/plan.hpp"

namespace partita {

/// The most bytes that a rank holds during a step.
struct MemoryPeak {
  MemoryUse each;   ///< the peak of each class, which may fall at different moments
  Index total = 0;  ///< the peak of the sum over all classes
};

/// Returns the bytes that a layer holds on `rank` (of the world) for one microbatch of the larger size, by class.
/// Weights, gradients and optimizer state are held all the time. Activations (the layer's output and the tensors that
/// its backward needs) and halos (extended inputs) are held from its forward to its backward.
MemoryUse layer_memory(const Plan& plan, int layer, int rank);

/// Returns the peak memory of `rank` (of the world) in a step, with the batch of images and targets. It replays the
/// step's operations (step.hpp) and counts the bytes of each buffer.
///
/// It does not count buffers for messages between nodes, nor the backend's own memory (padded or blocked copies,
/// scratch space of kernels). Kernels that compute while halos travel need a few rows more.
MemoryPeak peak_memory(const Plan& plan, int rank);

/// Throws Error if some rank holds more than `limit` bytes (0: no limit). The message names the rank that holds the
/// most bytes, the number of missing bytes, and the bytes of each class.
void check_memory(const Plan& plan, Index limit);

}  // namespace partita
