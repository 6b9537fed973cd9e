#pragma once

#include "partita/base/memory.hpp"
#include "partita/strategies/plan/plan.hpp"

namespace partita {

/// The most bytes that a rank holds during a step.
struct MemoryPeak {
  MemoryUse each;   ///< the peak of each class, which may fall at different moments
  Index total = 0;  ///< the peak of the sum over all classes
};

/// The bytes that a layer holds on `rank` (of the world) for one microbatch of the larger size, by class: weights, gradients and
/// optimizer state for good; activations (its output and what its backward keeps) and halos (extended inputs) from its forward to its
/// backward.
MemoryUse layer_memory(const Plan& plan, int layer, int rank);

/// The most that `rank` (of the world) holds in a step, with the batch of images and targets: replays the step's operations (step.hpp),
/// counting each buffer as its bytes. Left out: buffers for messages between nodes and the backend's own memory (padded or blocked
/// copies, scratch space of kernels); kernels that compute ahead of halos need a few rows more.
MemoryPeak peak_memory(const Plan& plan, int rank);

/// Throws Error if some rank holds more than `limit` bytes (0: no limit). The message names the rank that holds most, the missing bytes
/// and the bytes by class.
void check_memory(const Plan& plan, Index limit);

}  // namespace partita
