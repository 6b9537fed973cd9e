#pragma once

#include "partita/strategies/plan/plan.hpp"

namespace partita {

/// Checks the layouts of a layer, which an operator of the user's own may have made: there must be one for each tensor,
/// of the tensor's shape, on the grid of the layer's stage. Throws Error without the layer's name.
/// @pre All but the redistributions of `layer` is known.
void check_layouts(const LayerBinding& layer, const Grid& grid, bool training);

/// Throws Error if two tensors of a checkpoint would have one name, or if the name of one would be the path to another:
/// HDF5 has either an array or a folder under a name. Only names with a further '/' can collide.
void check_tensor_names(const Plan& plan);

}  // namespace partita
