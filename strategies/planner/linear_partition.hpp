#pragma once

#include <cstddef>
#include <vector>

namespace partita {

/// Consecutive parts: where they begin, but the first, and the greatest sum of one.
struct Parts {
  std::vector<std::size_t> begins;
  double longest = 0;
};

/// At most so many parts with the least greatest sum, to a thousandth.
Parts least_longest(const std::vector<double>& costs, int parts);

}  // namespace partita
