#include "partita/strategies/plan/leaving_bytes.hpp"

#include "strategies/plan/traffic.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace partita {

namespace {

/// How the group of a rank along some axes lies over nodes.
struct Spread {
  int inside = 0;  // ranks of the group in the rank's node
  int nodes = 0;
};

/// What one rank sends to other nodes.
class LeavingRank {
 public:
  LeavingRank(const Plan& plan, int rank, int node_ranks)
      : plan_(plan), grid_(plan.grids[plan.stage_of_rank(rank)]), rank_(rank), node_ranks_(node_ranks) {}

  /// Calls add(along, bytes) for the parts of an item that leave the node.
  template <class Add>
  void each_part(const PlannedTraffic& item, const Add& add) {
    if (item.verb == Verb::exchange) {
      for (const PeerTraffic& each : item.peers)
        if (leaves(rank_ + each.peer)) add(along(item, each.peer), static_cast<double>(each.sent.bytes));
    } else if (const double bytes = of_collective(item); bytes > 0) {
      add(item.axes == 0 ? stages : names(item.axes), bytes);
    }
  }

 private:
  static constexpr const char* stages = "stages";

  int node(int rank) const { return rank / node_ranks_; }
  bool leaves(int other) const { return node(other) != node(rank_); }

  std::string names(AxisSet axes) const {
    const std::string text = grid_.print(axes);
    return text.substr(1, text.size() - 2);
  }

  std::string along(const PlannedTraffic& item, int peer) const {
    if (item.purpose == Purpose::stages) return stages;
    const int here = rank_ - grid_.first_rank();
    AxisSet axes = 0;
    for (int axis = 0; axis < grid_.axes(); ++axis)
      if (grid_.coordinate(here, axis) != grid_.coordinate(here + peer, axis)) axes |= AxisSet{1} << axis;
    return names(axes);
  }

  double of_collective(const PlannedTraffic& item) {
    const auto bytes = static_cast<double>(item.traffic.bytes);
    if (const auto other = other_rank(plan_, item, rank_)) return leaves(*other) ? bytes : 0;
    const Spread& spread = over_nodes(item.axes);
    const int times = item.verb == Verb::all_reduce ? 2 : 1;
    return times * bytes * (spread.nodes - 1) / spread.nodes / spread.inside;
  }

  /// `axes` as in PlannedTraffic: 0 stands for all ranks.
  const Spread& over_nodes(AxisSet axes) {
    const auto [known, fresh] = known_.try_emplace(axes);
    Spread& spread = known->second;
    if (!fresh) return spread;
    std::set<int> nodes;
    const auto count = [&](int other) {
      spread.inside += leaves(other) ? 0 : 1;
      nodes.insert(node(other));
    };
    if (axes == 0)
      for (int other = 0; other < plan_.ranks(); ++other) count(other);
    else
      for (const int other : grid_.group(rank_ - grid_.first_rank(), axes)) count(grid_.first_rank() + other);
    spread.nodes = static_cast<int>(nodes.size());
    return spread;
  }

  const Plan& plan_;
  const Grid& grid_;
  int rank_, node_ranks_;
  std::map<AxisSet, Spread> known_;
};

}  // namespace

std::vector<LeavingBytes> leaving_bytes(const Plan& plan, int rank, int node_ranks) {
  const int first = rank / node_ranks * node_ranks, end = std::min(first + node_ranks, plan.ranks());
  std::map<std::string, double> sums;
  for (int member = first; member < end; ++member) {
    LeavingRank sender(plan, member, node_ranks);
    each_traffic(StepProgram(plan, plan.stage_of_rank(member)), member, [&](const PlannedTraffic& item) {
      sender.each_part(item, [&](const std::string& along, double bytes) { sums[along] += bytes; });
    });
  }
  std::vector<LeavingBytes> all;
  for (const auto& [along, bytes] : sums) all.push_back({along, bytes});
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return all;
}

}  // namespace partita
