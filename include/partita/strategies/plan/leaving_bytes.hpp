#pragma once

#include "partita/strategies/plan/plan.hpp"

#include <string>
#include <vector>

namespace partita {

/// What leaves a node along some axes of the grid.
struct LeavingBytes {
  std::string along;  ///< "data", "data,y" if both coordinates differ, or "stages"
  double bytes = 0;   ///< per step, in one direction
};

/// Returns the bytes that the ranks of a node send to other nodes in a step, the most first. The node is that of `rank`
/// (of the world); `node_ranks` consecutive ranks fill a node. Messages between two ranks count as they are. Of a
/// collective with n bytes over m nodes a node sends 2 (m - 1) / m n for an all-reduce and half of that for a gather, a
/// reduce-scatter or a broadcast, as sums by levels do; of an all-to-all each rank sends what others outside receive.
/// Axes along which nothing leaves the node are left out.
std::vector<LeavingBytes> leaving_bytes(const Plan& plan, int rank, int node_ranks);

}  // namespace partita
