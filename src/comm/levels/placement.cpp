#include "src/comm/levels/placement.hpp"

#include <algorithm>

namespace partita {

Placement::Placement(const std::vector<int>& nodes) {
  std::vector<int> names;  // by number of the node
  for (int rank = 0; rank < std::ssize(nodes); ++rank) {
    const auto found = std::find(names.begin(), names.end(), nodes[rank]);
    const auto number = found - names.begin();
    if (found == names.end()) {
      names.push_back(nodes[rank]);
      members_.emplace_back();
    }
    node_.push_back(static_cast<int>(number));
    place_.push_back(static_cast<int>(members_[number].size()));
    members_[number].push_back(rank);
  }
}

int Placement::on_each() const {
  const auto count = members_.front().size();
  const bool equal =
      std::all_of(members_.begin(), members_.end(), [&](const auto& ranks) { return ranks.size() == count; });
  return equal ? static_cast<int>(count) : 0;
}

Sharing sharing(const std::vector<std::vector<int>>& groups, const std::vector<int>& nodes) {
  const auto placed = [&](const std::vector<int>& group) {
    std::vector<int> of_group;
    for (const int rank : group) of_group.push_back(nodes[rank]);
    return Placement(of_group);
  };
  const Placement mine = placed(groups.front());
  const bool alike = std::all_of(groups.begin(), groups.end(), [&](const std::vector<int>& other) {
    return other.size() != groups.front().size() || placed(other) == mine;
  });
  return {.memory = alike && mine.nodes() == 1, .levels = alike && mine.has_levels()};
}

}  // namespace partita
