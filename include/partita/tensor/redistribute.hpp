#pragma once

#include "partita/comm/process_grid.hpp"
#include "partita/layouts/redistribution.hpp"
#include "partita/tensor/dist_tensor.hpp"

#include <vector>

namespace partita {

/// Returns `from` in the layout that the last of `steps` makes, or `from` itself if there are no steps.
/// Collective: every rank of `grid` calls it.
DistTensor redistribute(const DistTensor& from, const std::vector<RedistributionStep>& steps, const ProcessGrid& grid,
                        Stream stream = {});

/// Plans and runs a redistribution to the layout `to`. Collective: every rank of `grid` calls it.
DistTensor redistribute(const DistTensor& from, const Layout& to, const ProcessGrid& grid, Stream stream = {});

}  // namespace partita
