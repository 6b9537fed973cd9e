#pragma once

#include "partita/strategies/cost/estimate.hpp"
#include "partita/strategies/plan/memory.hpp"

#include <string>
#include <vector>

namespace partita {

/// What the rank that holds most has, against what it may hold.
struct Holding {
  int rank = 0;  ///< of the world
  MemoryPeak memory;
  Index missing = 0;                        ///< bytes beyond the limit; 0 if it fits
  MemoryClass most = MemoryClass::weights;  ///< the class that takes most of it
};

/// By a plan's price. `limit` in bytes; 0 for none.
Holding most_held(const Cost& cost, Index limit);

/// One change that may make a strategy fit, bound and priced.
struct Remedy {
  std::string change;  ///< "recompute = true in all layers", "a batch of 32", "the grid \"data=8\"", ...
  Index batch = 1;
  int ranks = 1;
  double seconds = 0;  ///< a step
  Index held = 0;      ///< bytes, of the rank that holds most
  Index missing = 0;   ///< of these, what is beyond the limit; 0 if it fits
  /// Seconds that all ranks together spend on a sample.
  double price() const { return seconds * ranks / static_cast<double>(batch); }
};

/// What would make a strategy fit `limit` bytes a rank, found by pricing each change by itself:
///
///     the update    distributed
///     activations   computed once more in backward, between layers that keep them; with that both
///     microbatches  twice as many, four times ... down to one sample; alone, and with both
///     the batch     halves, down to one sample
///     ranks         2, 4 and 8 times as many along each axis, or along a new one for N, H or C; twice as many `stages`
///
/// Of the steps of one change the smallest that fits is taken, or the one that lacks least. Those that fit come first, the cheapest
/// of them foremost; the others by what they lack. A change that cannot be bound, or that lowers nothing, is left out.
std::vector<Remedy> remedies(const Model& model, const Strategy& strategy, const Workload& workload,
                             const Machine& machine, const KernelTimes& times, Index limit);

}  // namespace partita
