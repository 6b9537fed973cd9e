#pragma once

#include "partita/strategies/plan/plan.hpp"

namespace partita {

/// Layers that keep what backward needs while all others compute it once more: those of which an output crosses one of the cuts of the
/// model into stretches. Held at most is then about what crosses, and what the largest stretch takes while it is computed again. Of all
/// cuts some with which that is near the least (after Chen et al. 2016, here for any graph and by what each layer takes on rank 0). None where
/// there are several stages, each of which is a stretch.
std::vector<std::string> layers_to_keep(const Plan& plan);

/// Computes once more all layers but these.
Strategy recomputing(Strategy strategy, const std::vector<std::string>& kept);

/// What that says in a file: "recompute = true in all layers but conv1, pool1".
std::string recompute_text(const std::vector<std::string>& kept);

}  // namespace partita
