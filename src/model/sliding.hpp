#pragma once

#include "partita/model/layers.hpp"

#include <span>
#include <vector>

// Helpers that layers with windows share.

namespace partita {

/// Number of spatial dimensions of x; throws Error if it has none.
std::size_t spatial_dims(const Shape& x);

/// Returns n * scale, the extent of dimension `name` of an output. Throws Error if it is more than 2^48.
Index scaled(Index n, Index scale, char name);

/// Returns the shape of y = window(x) with `channels` channels. Throws Error if a window does not fit.
Shape slide(const Shape& x, Index channels, std::span<const Window> windows);

}  // namespace partita
