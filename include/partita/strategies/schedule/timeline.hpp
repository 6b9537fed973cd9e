#pragma once

#include "partita/strategies/schedule/simulate.hpp"

#include <string>

namespace partita {

/// Draws one line per stage, from left to right. Each character shows the action in the middle of a slice of time, a
/// point if the stage waits. There are at most `columns` slices, and fewer if a slice would be shorter than the
/// shortest action.
std::string draw_timeline(const Simulation& simulation, int columns);

/// Draws the timeline as SVG for browsers: a row per stage, a bar per action with its microbatch, darker for later
/// groups of a stage. Pointing at an action shows its times.
std::string timeline_svg(const Simulation& simulation, const std::string& title);

}  // namespace partita
