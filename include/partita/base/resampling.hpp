#pragma once

#include "partita/base/box.hpp"

#include <array>

namespace partita {

/// How outputs of one dimension are made of inputs: each is a mean of one or two. A value.
struct Resampling {
  enum class Kind : std::uint8_t {
    crop,     ///< output o is input o + first
    nearest,  ///< input o / factor
    linear,   ///< between the inputs around (o + 1/2) / factor - 1/2, the first and the last go on at the ends
  };
  /// The inputs of an output and their weights, which sum to 1; the second weight may be 0.
  struct Taps {
    std::array<Index, 2> in;
    std::array<double, 2> weight;
  };

  Kind kind = Kind::nearest;
  Index inputs = 1;  ///< of the whole dimension
  Index factor = 1;
  Index first = 0;

  Taps taps(Index output) const;
  /// The smallest interval that holds every input that the outputs `out` are made of; empty if `out` is.
  Interval inputs_of(Interval out) const;
};

}  // namespace partita
