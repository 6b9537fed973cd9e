#pragma once

#include "partita/strategies/plan/plan.hpp"

namespace partita {

/// Throws Error if two tensors of a checkpoint would have one name, or if the name of one would be the path to another:
/// HDF5 has either an array or a folder under a name. Only names with a further '/' can collide.
void check_tensor_names(const Plan& plan);

}  // namespace partita
