#pragma once

#include "src/cli/support/machine_files.hpp"
#include "partita/strategies/planner/memory_remedies.hpp"

#include <string>
#include <vector>

namespace partita::cli {

/// "rank 3 holds 5.0 GiB (weights ..., activations ...), 1.0 GiB more than 4.0 GiB; most of it is activations".
std::string print(const Holding& held, Index limit);

/// What makes it fit, the cheapest first and at most so many: "it would fit with", `before` the first and `between` them, "a batch of
/// 32: 2.1 GiB a rank on 4 ranks, 14.2 samples/s". Where nothing does, what the nearest changes lack.
std::string print(const std::vector<Remedy>& remedies, std::size_t most, const char* before, const char* between);

/// Throws Error for a plan of which a rank passes the limit, with what would make its strategy fit, which is as it was given: one
/// whose stages are placed already leaves what is tried no other boundaries.
void check_fits(const Plan& plan, const Model& model, const Strategy& strategy, const MachineFiles& files, Index limit);

}  // namespace partita::cli
