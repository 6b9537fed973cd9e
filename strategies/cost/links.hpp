#pragma once

#include "partita/base/grid.hpp"
#include "partita/strategies/machine/machine.hpp"

#include <compare>

namespace partita {

/// The links that a message uses: those of a unit of the level below to the other units of a level.
struct Link {
  int level = 0;
  double sharing = 1;  ///< ranks of the unit that use its links at the same time
  /// The level's switches add what the ranks send (Level::reduction).
  bool adds = false;
  int width = 1;  ///< links that a message uses at once, where ranks are connected by several (PairLinks)
  bool operator==(const Link&) const = default;
};

/// Returns the links of a level that `concurrent` ranks of a unit use at the same time; at most all ranks of the unit
/// do. At the innermost level each rank is a unit of its own; if its pairs differ, the narrowest counts.
Link links_of_level(const Machine& machine, int level, double concurrent);

/// Returns the links between two world ranks if every rank sends as far at the same time. Of a unit, as many ranks
/// reach another one as the two ranks are apart.
Link links_of(const Machine& machine, int from, int to);

/// Where the ranks of a collective lie at one level.
struct Span {
  int level = 0;
  int ranks = 1;      ///< ranks of the collective in one unit of this level
  int inside = 1;     ///< ranks of the collective in one unit of the level below
  double groups = 1;  ///< collectives of the same kind that share a unit of the level below, and run at the same time
  int width = 1;      ///< Link::width between the ranks of the collective in the unit
  /// Units of the level below that hold ranks of the collective.
  int units() const { return (ranks + inside - 1) / inside; }
  auto operator<=>(const Span&) const = default;
};

/// Counts the ranks in [lo, end) among those that differ from `origin` only along `axes`, where axes before `axis` are
/// fixed.
int count_inside(const Grid& grid, AxisSet axes, int axis, int origin, int lo, int end);

}  // namespace partita
