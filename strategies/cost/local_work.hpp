#pragma once

#include "partita/strategies/machine/kernel_times.hpp"
#include "partita/strategies/plan/plan.hpp"

#include <string>
#include <vector>

namespace partita {

/// Describes what a rank of a layer's grid computes: kind and parameters, the extents of its blocks, and its local
/// conversions. Ranks and layers with equal texts do equal work.
std::string local_work(const LayerPlan& layer, int rank, const Workload& workload);
/// Describes the update of `elements` weight elements in the same way.
std::string update_work(Index elements, const Workload& workload);

/// Returns the microbatches of a plan whose actions are timed: the first ones that pass through its first replica. If
/// layers recompute, only one is timed: layers do not recompute while they are timed, so more microbatches may not fit.
std::vector<int> timed_microbatches(const Plan& plan);
/// Returns the loop in which a stage's layers are timed. Without training it is the loop of a single microbatch, since
/// the forward pass then keeps nothing.
Loop timed_loop(const Plan& plan, int stage);

}  // namespace partita
