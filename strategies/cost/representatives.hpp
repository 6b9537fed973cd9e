#pragma once

#include "partita/base/grid.hpp"
#include "partita/strategies/machine/machine.hpp"

#include <vector>

namespace partita {

// The ranks of a grid that are priced: they stand for all others.

/// True if the ranks along some axes neither fill units of a level nor divide them. Which of them meet at a border then
/// depends on their coordinates along all axes.
bool straddles(const Grid& grid, const Machine& machine);
/// Returns the first, a middle and the last rank along each axis of the grid. They include the ranks with the largest
/// and the smallest blocks, and an inner rank. Along the axes `every` it returns all ranks, or so many of them, evenly
/// spaced, that there are at most 256 in all.
std::vector<int> representatives(const Grid& grid, AxisSet every = 0);
/// As above, on a machine: the middle rank of an axis is one whose neighbor lies on another unit of the outermost level
/// that the axis crosses, the nearest one to the middle. If axes do not fit into the units of a level, e.g. 4 ranks
/// along an axis into nodes of 6, it returns all ranks along all axes, within the same bound. If pairs of ranks have
/// different links (PairLinks), it adds all ranks of the first unit.
std::vector<int> representatives(const Grid& grid, const Machine& machine, AxisSet every = 0);
/// Returns the coordinate of that middle rank.
/// @pre The axis has at least three coordinates.
int middle_coordinate(const Grid& grid, const Machine& machine, int axis);

}  // namespace partita
