#pragma once

#include "partita/base/box.hpp"

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

  Taps taps(Index output) const;
  /// Returns the smallest interval that holds every input of the outputs `out`; empty if `out` is empty.
  Interval inputs_of(Interval out) const;
};

}  // namespace partita
