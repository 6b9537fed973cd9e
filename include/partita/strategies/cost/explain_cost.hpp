#pragma once

#include "partita/strategies/cost/estimate.hpp"

#include <string>

namespace partita {

/// Explains the cost of a layer: one line for each number, with its formula and inputs.
std::string explain_cost(const Plan& plan, const Machine& machine, const KernelTimes& times, int layer);

}  // namespace partita
