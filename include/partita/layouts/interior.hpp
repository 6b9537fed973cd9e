#pragma once

#include "partita/base/box.hpp"
#include "partita/base/window.hpp"

#include <span>

namespace partita {

/// Returns the outputs of `y` that can be computed while halos travel: of the inputs in `needed`, they read only those
/// in `own`. Padding does not count as an input.
Box interior_of(std::span<const Window> windows, const Box& own, const Box& needed, const Box& y);

/// True if it is worth computing all of `y` at once and recomputing what lies outside `inside`. Returns false if half
/// of the outputs or fewer lie inside, since recomputing the rest then costs more than overlap can gain. Returns false
/// if `inside` is all of `y`, since then no halo is needed.
bool worth_overlap(const Box& inside, const Box& y);

/// Returns the part of `inputs` that the outputs `out` read.
Box reads_of(std::span<const Window> windows, const Box& out, const Box& inputs);

}  // namespace partita
