#pragma once

#include <cstddef>
#include <vector>

namespace partita {

/// Consecutive parts: where they begin, but the first, and the greatest sum of one.
struct Segments {
  std::vector<std::size_t> begins;
  double longest = 0;
};

/// At most so many parts with the least greatest sum, to a thousandth.
Segments minimize_max_segment(const std::vector<double>& costs, int parts);

}  // namespace partita
