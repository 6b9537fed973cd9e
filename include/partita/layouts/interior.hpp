#pragma once

#include "partita/base/box.hpp"
#include "partita/base/window.hpp"

#include <span>
#include <vector>

namespace partita {

/// Returns the outputs of `y` that can be computed while halos travel: of the inputs in `needed`, their taps hit only
/// those in `own`. Padding does not count as an input.
Box interior_of(std::span<const Window> windows, const Box& own, const Box& needed, const Box& y);

/// True if it is worth computing all of `y` at once and recomputing what lies outside `inside`. Returns false if half
/// of the outputs or fewer lie inside, since recomputing the rest then costs more than overlap can gain. Returns false
/// if `inside` is all of `y`, since then no halo is needed.
bool worth_overlap(const Box& inside, const Box& y);

/// Outputs, and the box of inputs that they read.
struct Border {
  Box outputs, inputs;
};
/// Returns the parts of `y` that a kernel computes again, once the inputs in `needed` have come, if it computes all of
/// `y` from the inputs in `own` before. None if this is not worth it.
std::vector<Border> recomputed_borders(std::span<const Window> windows, const Box& own, const Box& needed,
                                       const Box& y);

}  // namespace partita
