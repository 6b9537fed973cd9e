#pragma once

#include "partita/strategies/machine/kernel_times.hpp"
#include "partita/strategies/machine/machine.hpp"
#include "partita/strategies/plan/plan.hpp"

#include <string>

namespace partita {

/// Returns the trace of one rank in a training step, for `smpirun -replay`. It holds the operations of the rank's
/// StepProgram: computation by its price, exchanges and transfers between stages message by message, and collectives as
/// the messages of the algorithm that is the cheapest on `machine`. A rank waits for its messages before it computes;
/// only transfers between stages go on meanwhile.
/// @pre `machine` has no switches that add (simgrid_machine).
std::string simgrid_trace(const Plan& plan, const Machine& machine, const KernelTimes& times, int rank);

}  // namespace partita
