#pragma once

#include "partita/strategies/cost/estimate.hpp"

#include <optional>
#include <string>

namespace partita {

/// Explains the cost of a layer: one line for each number, with its formula and inputs. Of the ranks of the layer's
/// grid it takes the slowest, which is the one that counts, or `rank`.
std::string explain_cost(const Plan& plan, const Machine& machine, const KernelTimes& times, int layer,
                         std::optional<int> rank = {});

}  // namespace partita
