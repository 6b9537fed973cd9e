#pragma once

#include "partita/base/types.hpp"

#include <numeric>
#include <span>

namespace partita {

/// The elements of all ranks together.
inline Index sum(std::span<const Index> counts) { return std::accumulate(counts.begin(), counts.end(), Index{0}); }

}  // namespace partita
