#include "partita/base/resampling.hpp"

#include <algorithm>

namespace partita {

Interval Resampling::inputs_of(Interval out) const {
  if (out.empty()) return {};
  const Taps low = taps(out.lo), high = taps(out.hi - 1);
  return {low.in[0], std::max(high.in[0], high.in[1]) + 1};
}

}  // namespace partita
