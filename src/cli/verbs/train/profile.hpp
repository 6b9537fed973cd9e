#pragma once

#include "partita/comm/communicator.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "src/device/profile.hpp"

#include <vector>

namespace partita::cli {

/// The layer to which a rank charges its delays (--delay).
inline constexpr const char* delay_layer = "delay";

/// Prints on rank 0 where the time of `steps` steps went: a row for each layer (on rank 0) and a row for each rank,
/// with its delays beside it.
/// Collective: every rank of `world` calls it.
void print_profile(Profile& profile, Index steps, const std::vector<LayerPlan>& layers, Communicator& world);

}  // namespace partita::cli
