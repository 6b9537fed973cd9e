#pragma once

#include <cstddef>
#include <vector>

namespace partita {

/// A division of a sequence into consecutive segments: the starts of all segments but the first, and the largest sum of
/// a segment.
struct Segments {
  std::vector<std::size_t> begins;
  double longest = 0;
};

/// Splits costs into at most `parts` consecutive segments and minimizes the largest sum (relative tolerance 1e-3).
Segments minimize_max_segment(const std::vector<double>& costs, int parts);

}  // namespace partita
