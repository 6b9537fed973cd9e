#pragma once

#include "partita/base/types.hpp"

namespace partita {

/// The extents of a tensor of numbers S N C (norm_numbers): N parts, and C channels or groups of channels.
struct NormExtents {
  Index parts, channels;
  bool operator==(const NormExtents&) const = default;
};

}  // namespace partita
