#pragma once

#include "partita/comm/communicator.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "src/device/profile.hpp"

#include <vector>

namespace partita::cli {

/// Prints on rank 0 where the time of `steps` steps went: a row for each layer (on rank 0) and a row for each rank.
/// Collective: every rank of `world` calls it.
void print_profile(Profile& profile, Index steps, const std::vector<LayerPlan>& layers, Communicator& world);

}  // namespace partita::cli
