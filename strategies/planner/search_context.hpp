#pragma once

#include "partita/strategies/machine/kernel_times.hpp"
#include "partita/strategies/machine/machine.hpp"
#include "partita/strategies/plan/plan.hpp"

namespace partita {

/// What every search for a strategy is given, and does not change.
/// @pre All of it outlives the search.
struct SearchContext {
  const Model& model;
  const Workload& workload;
  const Machine& machine;
  const KernelTimes& times;
};

}  // namespace partita
