#pragma once

#include "partita/strategies/machine/kernel_times.hpp"
#include "partita/strategies/machine/machine.hpp"
#include "partita/strategies/plan/plan.hpp"

#include <string>

namespace partita {

/// Returns the trace of one rank in a training step, for `smpirun -replay`: what walk_step() tells, with collectives as
/// the messages of the algorithm that is the cheapest on `machine`.
/// @pre `machine` has no switches that add (simgrid_machine).
std::string simgrid_trace(const Plan& plan, const Machine& machine, const KernelTimes& times, int rank);

}  // namespace partita
