#pragma once

#include "partita/layouts/layout.hpp"

#include <string>

namespace partita {

/// Draws in ASCII how two dimensions are cut and which ranks hold each block. There is one line per block of `rows`.
///
///     picture(Layout "N H@y W@x" on "y=2 x=2", 'H', 'W') with H=5, W=4:
///             W  [0,2)  [2,4)
///     H [0,3)      0      1
///     H [3,5)      2      3
///
/// Throws Error if the shape lacks a dimension.
std::string picture(const Layout& layout, char rows, char columns);

}  // namespace partita
