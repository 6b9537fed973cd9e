#pragma once

#include "partita/strategies/plan/plan.hpp"

#include <string>

namespace partita::test {

/// The number of different tokens in models that have an input of them.
inline constexpr Index vocabulary = 7;

/// A model, a strategy, a batch size and an optimizer, drawn from a seed. Extents are prime, tiny or smaller than the
/// grid; kernels, strides, dilations, paddings and groups are arbitrary; there are 1, 2 or 3 spatial dimensions. Grids
/// have 1, 2, 3, 4, 6 or 8 ranks, with axes in any order, some of them unused.
struct RandomCase {
  /// With a `width` above 1, layers have so many times the filters and features, so that sums of their gradients exceed
  /// the sizes at which transports change their algorithms.
  explicit RandomCase(std::uint64_t seed, Index width = 1);

  std::string print() const;

  Model model;
  Strategy strategy;
  Index batch = 1;
  Optimizer optimizer;
};

}  // namespace partita::test
