#pragma once

#include "partita/strategies/machine/machine.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "partita/strategies/plan/traffic.hpp"
#include "strategies/cost/counted_collectives.hpp"
#include "strategies/cost/links.hpp"

#include <map>
#include <memory>
#include <tuple>
#include <vector>

namespace partita {

/// Finds where the ranks of a plan's collectives lie on the levels of a machine.
class CollectiveSpans {
 public:
  /// @pre The arguments outlive it.
  CollectiveSpans(const Plan& plan, const Machine& machine) : plan_(plan), machine_(machine) {}

  /// True if units of the machine may hold different numbers of the ranks of a collective.
  bool is_uneven(const PlannedTraffic& item, const Grid& grid);
  /// Returns where the ranks of the collective lie in which a rank of the grid takes part, by level from the inside
  /// out. Levels at which it has a single unit are left out. The next call overwrites them.
  /// @pre !is_uneven(item, grid)
  const std::vector<Span>& even(const PlannedTraffic& item, const Grid& grid, int rank);
  /// Returns the collectives of an item that run at the same time on a grid.
  CountedCollectives& counted(const PlannedTraffic& item, const Grid& grid);

 private:
  /// The world ranks that take part in a collective.
  struct Group {
    int first = 0, last = 0, ranks = 1;
    int inside = 1;  // ranks of the group in the rank's own unit
  };
  Group group(const PlannedTraffic& item, const Grid& grid, int rank, int level) const;
  std::vector<int> members(const PlannedTraffic& item, const Grid& grid, int rank) const;
  int width(const PlannedTraffic& item, const Grid& grid, int rank);

  const Plan& plan_;
  const Machine& machine_;
  std::map<std::vector<int>, int> widths_;  // by ranks of a unit
  std::vector<Span> even_;                  // of the collective that was asked for last
  std::map<const Grid*, bool> straddles_;   // by grid
  std::map<std::tuple<const Grid*, AxisSet, Verb>, std::shared_ptr<CountedCollectives>> counted_;
};

}  // namespace partita
