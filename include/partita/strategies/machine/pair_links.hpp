#pragma once

#include <span>
#include <string>
#include <vector>

namespace partita {

/// How many links connect each two ranks of a unit, where these differ, e.g. 4, 2, 1 or no links between the dies of a
/// node of MI250X. A value; ranks are numbered from 0 within the unit.
class PairLinks {
 public:
  /// All ranks have one link to a switch.
  PairLinks() = default;
  /// Takes a table with one row and one column a rank. Throws Error unless it is square and symmetric, has zeros on its
  /// diagonal and no negative numbers, and connects all ranks.
  PairLinks(std::vector<std::vector<int>> links, std::string source);

  bool empty() const { return links_.empty(); }
  int ranks() const { return static_cast<int>(links_.size()); }
  const std::vector<std::vector<int>>& links() const { return links_; }
  const std::string& source() const { return source_; }

  /// Returns the links of the widest route between two ranks: a message between ranks without a direct link passes
  /// others, and is as fast as the narrowest hop.
  int width(int rank, int other) const { return widths_[rank][other]; }
  /// Returns the ranks of an innermost unit that are among these world ranks, for the unit in which `rank` lies.
  std::vector<int> places(std::span<const int> world_ranks, int rank) const;
  /// Returns the links that a collective of these ranks can use at once, with several rings or trees as NCCL and RCCL
  /// have them: the fewest links between two parts of the ranks (Edmonds, Edge-disjoint branchings, 1973). If their
  /// links do not connect them, returns the width of the narrowest route.
  int width(std::span<const int> ranks) const;
  /// Returns the width of the narrowest route.
  int narrowest() const { return narrowest_; }

 private:
  std::vector<std::vector<int>> links_, widths_;
  std::string source_;
  int narrowest_ = 1;
};

}  // namespace partita
