#pragma once

#include "partita/base/box.hpp"
#include "partita/base/host_device.hpp"

#include <array>

namespace partita {

/// How the outputs of one dimension are computed from its inputs. Each output is a weighted mean of one or two inputs.
struct Resampling {
  enum class Kind : std::uint8_t {
    crop,     ///< output o is input o + first
    nearest,  ///< output o is input o / factor
    linear,   ///< output o interpolates the inputs around (o + 1/2) / factor - 1/2; the end inputs are extended
  };
  /// The inputs of one output and their weights. The weights sum to 1; the second weight may be 0.
  struct Taps {
    std::array<Index, 2> in;
    std::array<double, 2> weight;
  };

  Kind kind = Kind::nearest;
  Index inputs = 1;  ///< global extent of the input dimension
  Index factor = 1;  ///< outputs per input (nearest, linear)
  Index first = 0;   ///< input of output 0 (crop)

  PARTITA_HOST_DEVICE Taps taps(Index output) const {
    if (kind == Kind::crop) return {{output + first, output + first}, {1, 0}};
    if (kind == Kind::nearest) return {{output / factor, output / factor}, {1, 0}};
    // The position in units of half an output is an integer, so the weights are exact for any factor.
    const Index position = 2 * output + 1 - factor, twice = position > 0 ? position : 0;
    const Index below = twice / (2 * factor), last = inputs - 1;
    const double above = static_cast<double>(twice % (2 * factor)) / static_cast<double>(2 * factor);
    const Index in = below < last ? below : last;
    if (below >= last || above == 0) return {{in, in}, {1, 0}};
    return {{below, below + 1}, {1 - above, above}};
  }
  /// Returns the smallest interval that holds every input of the outputs `out`; empty if `out` is empty.
  Interval inputs_of(Interval out) const;
};

}  // namespace partita
