#pragma once

#include "partita/strategies/machine/machine.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "partita/strategies/plan/traffic.hpp"
#include "strategies/cost/links.hpp"

#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace partita {

/// Returns where the ranks of a collective lie if units hold different numbers of them, e.g. 9 ranks on nodes of 8: one
/// list of spans for each way in which a rank lies, all with the same levels. `members` are world ranks in ascending
/// order, `grid` is theirs.
std::vector<std::vector<Span>> uneven_spans(const Machine& machine, const Grid& grid, const std::vector<int>& members);

/// Finds where the ranks of a plan's collectives lie on the levels of a machine.
class CollectiveSpans {
 public:
  /// @pre The arguments outlive it.
  CollectiveSpans(const Plan& plan, const Machine& machine) : plan_(plan), machine_(machine) {}

  struct Spans {
    std::span<const Span> spans;  ///< of each way to lie, one after the other
    int kinds = 1;                ///< the number of ways
  };
  /// Returns the spans of the collective that a rank of the grid takes part in. The next call may overwrite them.
  Spans of(const PlannedTraffic& item, const Grid& grid, int rank);

 private:
  /// The world ranks that take part in a collective.
  struct Group {
    int first = 0, last = 0, ranks = 1;
    int inside = 1;  // ranks of the group in the rank's own unit
  };
  Group group(const PlannedTraffic& item, const Grid& grid, int rank, int level) const;
  std::vector<int> members(const PlannedTraffic& item, const Grid& grid, int rank) const;
  bool is_uneven(const PlannedTraffic& item, const Grid& grid);
  int width(const PlannedTraffic& item, const Grid& grid, int rank);
  const std::vector<Span>& even(const PlannedTraffic& item, const Grid& grid, int rank);

  const Plan& plan_;
  const Machine& machine_;
  std::map<std::vector<int>, int> widths_;  // by ranks of a unit
  std::vector<Span> even_;                  // of the collective that was asked for last
  std::map<const Grid*, bool> straddles_;   // by grid
  /// By grid, axes and first rank of a collective: the spans of each way to lie, one after the other, and how many.
  std::map<std::tuple<const Grid*, AxisSet, int>, std::pair<std::vector<Span>, int>> uneven_;
};

}  // namespace partita
