#pragma once

#include "partita/comm/process_grid.hpp"
#include "partita/layouts/redistribution.hpp"
#include "partita/tensor/dist_tensor.hpp"

#include <vector>

namespace partita {

/// `from` in the last layout of `steps`; `from` itself if there are none. Collective over the grid.
DistTensor redistribute(const DistTensor& from, const std::vector<RedistributionStep>& steps, const ProcessGrid& grid,
                        Stream stream = {});

/// The same for a layout: plans and runs.
DistTensor redistribute(const DistTensor& from, const Layout& to, const ProcessGrid& grid, Stream stream = {});

}  // namespace partita
