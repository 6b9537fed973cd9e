#pragma once

#include "partita/base/memory_use.hpp"
#include "partita/strategies/plan/plan.hpp"

#include <functional>

namespace partita {

/// The most bytes that a rank holds during a step.
struct MemoryPeak {
  MemoryUse each;   ///< the peak of each class, which may fall at different moments
  Index total = 0;  ///< the peak of the sum over all classes
  /// Makes this the peak of both.
  void include(const MemoryPeak& other);
  bool operator==(const MemoryPeak&) const = default;
};

/// How messages use the memory of tensors, beside what is received into them.
struct MessageMemory {
  bool packs = false;   ///< what is not contiguous passes through buffers (Communicator::packs)
  bool overlap = true;  ///< halos of gradients travel while gradients of weights are computed
  bool ahead = false;   ///< layers compute while the halo of x travels (Operator::held_ahead)
};

/// Returns the bytes that a layer holds on `rank` (of the world) for one microbatch of the larger size, by class.
/// Weights, gradients and optimizer state are held all the time. Activations (the layer's output and the tensors that
/// its backward needs) and halos (extended inputs) are held from its forward to its backward.
MemoryUse layer_memory(const Plan& plan, int layer, int rank);

/// Returns the bytes that `rank` (of the world) holds all the time under a plan: weights, gradients and optimizer
/// state.
MemoryUse state_memory(const Plan& plan, int rank);

/// Returns the peak memory of `rank` (of the world) in a step, with the batch of images and targets. It replays the
/// step's operations (StepProgram) and counts the bytes of each buffer. The first function adds state_memory(plan,
/// rank), the second one `held`: the bytes that the rank holds all the time. A run holds the state of the plan of a
/// whole batch also during an evaluation, and the samples of its data sets.
///
/// It does not count the backend's own memory (padded or blocked copies, scratch space of kernels).
MemoryPeak peak_memory(const Plan& plan, int rank);
MemoryPeak peak_memory(const Plan& plan, int rank, const MemoryUse& held, const MessageMemory& messages = {});

/// Returns the bytes that the allocator of `rank` takes for a step. They are more than the peak, because released
/// memory is kept, and used again for buffers of the same size (Allocator::peak_taken). Within a limit it takes no more
/// than that, and gives memory back in each step, which takes time. Up to 4 % too high where layers have halos.
Index taken_memory(const Plan& plan, int rank, const MemoryUse& held, const MessageMemory& messages = {});

/// Returns the box of what `rank` (of the world) keeps of a layer for later places, for the samples of a microbatch and
/// `places` places (N C L, with Operator::kept_channels channels); no dimensions if it keeps nothing. The plan is that
/// of passes over some places (Model::at_places).
Box kept_box(const Plan& plan, int microbatch, int layer, int rank, Index places);
/// Returns the bytes of all that `rank` keeps so, between and during such passes.
Index kept_memory(const Plan& plan, int rank, Index places);

/// Throws Error if some rank holds more than `limit` bytes (0: no limit). The message names the rank that holds the
/// most bytes, the number of missing bytes, and the bytes of each class.
void check_memory(const Plan& plan, Index limit);
/// Checks the peak of each rank that `peak_of` returns, of a run whose whole batches run `plan`.
void check_memory(const Plan& plan, Index limit, const std::function<MemoryPeak(int rank)>& peak_of);

}  // namespace partita
