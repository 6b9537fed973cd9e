#pragma once

#include "partita/strategies/machine/kernel_times.hpp"
#include "partita/strategies/plan/plan.hpp"

#include <string>
#include <vector>

namespace partita {

/// What a rank of a layer's grid computes, as a text: kind and parameters, the extents of its blocks, what it converts locally.
/// Ranks and layers with equal texts do equal work.
std::string local_work(const LayerPlan& layer, int rank, const Workload& workload);
/// The same of an update of so many elements.
std::string update_work(Index elements, const Workload& workload);

/// The microbatches of a plan in whose actions its layers are timed: the first ones that go through its first replica. One alone
/// where layers recompute, which they do not while they are timed: more may not fit.
std::vector<int> timed_microbatches(const Plan& plan);
/// The loop in which a stage's layers are timed. That of a single microbatch where nothing is trained: forward keeps nothing.
Loop timed_loop(const Plan& plan, int stage);

}  // namespace partita
