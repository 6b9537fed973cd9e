#pragma once

#include "partita/comm/communicator.hpp"

#include <algorithm>
#include <vector>

namespace partita {

/// Returns the median, of an even number of values the upper one, and 0 of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Returns the largest of all ranks' numbers. Collective: every rank of `world` calls it.
inline double largest(double mine, Communicator& world) {
  world.all_reduce(&mine, 1, DType::f64, ReduceOp::max, {}).wait();
  return mine;
}

}  // namespace partita
