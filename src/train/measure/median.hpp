#pragma once

#include <algorithm>
#include <vector>

namespace partita {

/// Returns the median, of an even number of values the upper one, and 0 of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace partita
