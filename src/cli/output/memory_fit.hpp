#pragma once

#include "partita/strategies/planner/memory_remedies.hpp"
#include "src/cli/inputs/machine_files.hpp"

#include <string>
#include <vector>

namespace partita::cli {

/// Returns e.g. "rank 3 holds 5.0 GiB (weights ..., activations ...), 1.0 GiB more than the limit of 4.0 GiB; the
/// largest part is activations".
std::string print(const Holding& held, Index limit);

/// Returns the changes that make a strategy fit, cheapest first and at most `most`, e.g. "it would fit with a batch of
/// 32: 2.1 GiB per rank on 4 ranks, 14.2 samples/s". `before` comes before the first change, `between` between two
/// changes. If no change makes it fit, returns how far the closest changes exceed the limit.
std::string print(const std::vector<Remedy>& remedies, std::size_t most, const char* before, const char* between);

/// Throws Error if a rank of the plan exceeds the limit. The message names changes that would make `strategy` fit. Pass
/// the strategy as the user gave it: if its stage boundaries are already placed, the changes cannot move them.
void check_fits(const Plan& plan, const Model& model, const Strategy& strategy, const MachineFiles& files, Index limit);
/// Checks a whole run, in which each rank holds what `peak_of` returns: the plan is that of its whole batches.
void check_fits(const Plan& plan, const Model& model, const Strategy& strategy, const MachineFiles& files, Index limit,
                const std::function<MemoryPeak(int rank)>& peak_of);

}  // namespace partita::cli
