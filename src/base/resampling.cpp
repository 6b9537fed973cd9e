#include "partita/base/resampling.hpp"

#include <algorithm>

namespace partita {

Resampling::Taps Resampling::taps(Index output) const {
  if (kind == Kind::crop) return {{output + first, output + first}, {1, 0}};
  if (kind == Kind::nearest) return {{output / factor, output / factor}, {1, 0}};
  // The position in units of half an output is an integer, so the weights are exact for any factor.
  const Index twice = std::max<Index>(2 * output + 1 - factor, 0);
  const Index below = twice / (2 * factor);
  const double above = static_cast<double>(twice % (2 * factor)) / static_cast<double>(2 * factor);
  const Index last = inputs - 1;
  if (below >= last || above == 0) return {{std::min(below, last), std::min(below, last)}, {1, 0}};
  return {{below, below + 1}, {1 - above, above}};
}

Interval Resampling::inputs_of(Interval out) const {
  if (out.empty()) return {};
  const Taps low = taps(out.lo), high = taps(out.hi - 1);
  return {low.in[0], std::max(high.in[0], high.in[1]) + 1};
}

}  // namespace partita
