#include "partita/layouts/transfer.hpp"

#include "partita/base/error.hpp"

namespace partita {

Index TransferPlan::sent() const {
  Index elements = 0;
  for (const auto& send : sends) elements += send.box.volume();
  return elements;
}

namespace {

/// Of several ranks the one nearest to `receiver`, the first of equals.
int nearest(std::span<const int> ranks, int receiver, const Grid& grid) {
  int best = ranks.front(), least = grid.distance(best, receiver);
  for (const int rank : ranks.subspan(1)) {
    if (least == 0) break;
    if (const int distance = grid.distance(rank, receiver); distance < least) {
      best = rank;
      least = distance;
    }
  }
  return best;
}

/// The ranks whose owned boxes meet `box`, one for each distinct owned box: the replica nearest to `receiver`.
std::vector<int> senders(std::span<const Box> owned, const Box& box, int receiver, const Grid& grid) {
  std::vector<int> chosen;
  for (int rank = 0; rank < static_cast<int>(owned.size()); ++rank) {
    const auto& mine = owned[static_cast<std::size_t>(rank)];
    if (intersect(mine, box).empty()) continue;
    bool replica = false;
    for (auto& other : chosen) {
      if (!(owned[static_cast<std::size_t>(other)] == mine)) continue;
      replica = true;
      if (grid.distance(rank, receiver) < grid.distance(other, receiver)) other = rank;
    }
    if (!replica) chosen.push_back(rank);
  }
  return chosen;
}

}  // namespace

TransferPlan plan_transfer(std::span<const Box> owned, std::span<const Box> needed, int rank, const Grid& grid) {
  require(owned.size() == needed.size(), "one owned and one needed box a rank");
  TransferPlan plan;
  const auto& mine = owned[static_cast<std::size_t>(rank)];
  std::vector<int> replicas;  // that own the same
  for (int other = 0; other < static_cast<int>(owned.size()); ++other)
    if (owned[static_cast<std::size_t>(other)] == mine) replicas.push_back(other);
  for (int receiver = 0; receiver < static_cast<int>(needed.size()); ++receiver) {
    if (receiver == rank) continue;
    const Box part = intersect(mine, needed[static_cast<std::size_t>(receiver)]);
    if (!part.empty() && nearest(replicas, receiver, grid) == rank) plan.sends.push_back({receiver, part});
  }
  const auto& box = needed[static_cast<std::size_t>(rank)];
  for (const int sender : senders(owned, box, rank, grid)) {
    const Box part = intersect(owned[static_cast<std::size_t>(sender)], box);
    (sender == rank ? plan.locals : plan.recvs).push_back({sender, part});
  }
  return plan;
}

}  // namespace partita
