#pragma once

#include "partita/strategies/schedule/simulate.hpp"

#include <string>

namespace partita {

/// One line a stage, from left to right: the letter of what it does in the middle of each slice of time, a point where it
/// waits. `columns` slices at most; fewer if each then is the shortest action.
std::string draw_timeline(const Simulation& simulation, int columns);

/// The same as a drawing that browsers show: a row a stage, a bar an action with its microbatch, darker for later groups of
/// a stage; the times of an action appear where the pointer is.
std::string timeline_svg(const Simulation& simulation, const std::string& title);

}  // namespace partita
