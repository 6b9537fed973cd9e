#pragma once

#include "partita/model/layers.hpp"

#include <span>
#include <vector>

// What layers with windows have in common.

namespace partita {

/// Number of spatial dimensions of x; throws Error if it has none.
std::size_t spatial_dims(const Shape& x);

/// The shape of y = window(x) with `channels`; throws Error where a window does not fit.
Shape slide(const Shape& x, Index channels, std::span<const Window> windows);

}  // namespace partita
