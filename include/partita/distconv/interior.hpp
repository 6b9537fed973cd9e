#pragma once

#include "partita/base/box.hpp"
#include "partita/base/window.hpp"

#include <span>

namespace partita {

/// The outputs of `y` that read, of the inputs `needed` by the rank, only those in `own`: what can be computed while
/// halos travel. Padding is no input.
Box interior_of(std::span<const Window> windows, const Box& own, const Box& needed, const Box& y);

/// True if computing all of `y` at once and what lies outside `inside` again is worth it: not where less than half of
/// the outputs are inside, as what is computed twice would cost more than hiding can gain.
bool worth_overlap(const Box& inside, const Box& y);

/// The part of `inputs` that the outputs `out` read.
Box reads_of(std::span<const Window> windows, const Box& out, const Box& inputs);

}  // namespace partita
