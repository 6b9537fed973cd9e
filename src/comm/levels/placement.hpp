#pragma once

#include <vector>

namespace partita {

/// On which nodes the ranks of a communicator are.
class Placement {
 public:
  /// `nodes`: of each rank, any number that the ranks of its node have in common.
  explicit Placement(const std::vector<int>& nodes);

  int nodes() const { return static_cast<int>(members_.size()); }
  /// The number of a rank's node. Nodes are numbered in the order of their first ranks.
  int node(int rank) const { return node_[rank]; }
  /// The rank's number among the ranks of its node.
  int place(int rank) const { return place_[rank]; }
  /// The rank at a place of a node.
  int rank(int node, int place) const { return members_[node][place]; }
  /// How many ranks each node has; 0 if they differ.
  int on_each() const;
  /// True if sums by levels send less between nodes than flat ones: several nodes, with several ranks each.
  bool has_levels() const { return nodes() > 1 && on_each() > 1; }
  /// Two placements are equal if the same ranks share nodes.
  bool operator==(const Placement& other) const { return node_ == other.node_; }

 private:
  std::vector<int> node_, place_;          // by rank
  std::vector<std::vector<int>> members_;  // by node
};

/// How the ranks of a communicator may run collectives.
struct Sharing {
  bool memory = false;  ///< through memory: they are on one node
  bool levels = false;  ///< by levels
};

/// Returns how the ranks of the first group may run collectives, of groups into which ranks are split. `nodes`: of each
/// rank, as in Placement. Groups of equally many ranks may hold replicas of one weight, whose sums must be formed in
/// the same order. So they do the same: what not all of them can do, none does.
Sharing sharing(const std::vector<std::vector<int>>& groups, const std::vector<int>& nodes);

}  // namespace partita
