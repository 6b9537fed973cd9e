#pragma once

#include "partita/strategies/cost/estimate.hpp"
#include "partita/strategies/plan/memory.hpp"

#include <string>
#include <vector>

namespace partita {

/// The memory of the rank that holds most, compared with a limit.
struct Holding {
  int rank = 0;  ///< rank in the world
  MemoryPeak memory;
  Index missing = 0;                        ///< bytes beyond the limit; 0 if it fits
  MemoryClass most = MemoryClass::weights;  ///< the class that takes most of the memory
};

/// Returns the rank that holds most according to a plan's cost estimate. `limit` is in bytes; 0 means no limit.
Holding most_held(const Cost& cost, Index limit);

/// One change that may make a strategy fit the memory limit, with its estimated time and memory.
struct Remedy {
  std::string change;  ///< "recompute = true in all layers", "a batch of 32", "the grid \"data=8\"", ...
  Index batch = 1;
  int ranks = 1;
  double seconds = 0;  ///< seconds per step
  Index held = 0;      ///< bytes on the rank that holds most
  Index missing = 0;   ///< bytes of `held` beyond the limit; 0 if it fits
  /// Seconds that all ranks together spend per sample.
  double price() const { return seconds * ranks / static_cast<double>(batch); }
};

/// Returns changes that make a strategy fit a limit of `limit` bytes per rank. Each change is tried and estimated on
/// its own:
///
///     optimizer     sharded
///     weights       sharded; and this with recomputation
///     activations   recomputed in the backward pass, except in a few layers that keep what the others need for that;
///                   and this with a sharded optimizer
///     microbatches  2, 4, ... times as many, down to one sample each; alone, and with both changes above
///     batch         halved repeatedly, down to one sample
///     ranks         2, 4 and 8 times as many along each axis, or along a new axis for N, H or C; twice as many
///                   `stages`
///
/// If a change has several steps, the smallest step that fits is returned, or the step that misses the limit by least.
/// Changes that fit come first, ordered by price(); the others follow, ordered by missing bytes. A change that cannot
/// be bound, or that does not reduce the memory, is left out.
std::vector<Remedy> remedies(const Model& model, const Strategy& strategy, const Workload& workload,
                             const Machine& machine, const KernelTimes& times, Index limit);

}  // namespace partita
