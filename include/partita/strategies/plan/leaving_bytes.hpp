#pragma once

#include "partita/strategies/plan/plan.hpp"

#include <string>
#include <vector>

namespace partita {

/// What leaves a node along some axes of the grid.
struct LeavingBytes {
  /// "data", "data,y" if both coordinates differ, or "stages": between stages, replicas and copies of a table
  std::string along;
  double bytes = 0;  ///< per step, in one direction
};

/// Returns the bytes that the ranks of a node send to other nodes in a step, the most first. The node is that of `rank`
/// (of the world); `node_ranks` consecutive ranks fill a node. Messages between two ranks count as they are. An
/// all-reduce of n bytes over m nodes counts 2 (m - 1) / m n, and a gather or a reduce-scatter half of that:
/// what collectives by levels send, and the least. Those of groups that lie unevenly over nodes run flat and send more.
/// Axes along which nothing leaves the node are left out.
/// @pre `rank` is a rank of the plan, and `node_ranks` is 1 or more.
std::vector<LeavingBytes> leaving_bytes(const Plan& plan, int rank, int node_ranks);

}  // namespace partita
