#include "partita/layouts/transfer.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace partita {

Index TransferPlan::sent() const {
  Index elements = 0;
  for (const auto& send : sends) elements += send.box.volume();
  return elements;
}

Traffic TransferPlan::traffic(Index element_size) const {
  return {static_cast<Index>(sends.size()), sent() * element_size};
}

namespace {

Index packed(std::span<const Transfer> boxes, std::string_view names, const Box& whole) {
  Index elements = 0;
  for (const Transfer& each : boxes) elements += is_run(names, whole, each.box) ? 0 : each.box.volume();
  return elements;
}

}  // namespace

PackedElements packed_elements(const TransferPlan& plan, std::string_view names, const Box& from, const Box& to) {
  return {packed(plan.sends, names, from), packed(plan.recvs, names, to)};
}

PackedElements packed_by_adjoint(const TransferPlan& plan, std::string_view names, const Box& from) {
  return {packed(plan.recvs, names, from), plan.sent()};
}

Traffic sent_to_all(const std::vector<PeerTraffic>& peers) {
  Traffic sent;
  for (const PeerTraffic& peer : peers) sent += peer.sent;
  return sent;
}

PeerTraffic& traffic_with(std::vector<PeerTraffic>& peers, int peer) {
  if (peers.empty() || peers.back().peer < peer) return peers.emplace_back(PeerTraffic{peer, {}, {}});
  const auto at = std::lower_bound(peers.begin(), peers.end(), peer,
                                   [](const PeerTraffic& each, int other) { return each.peer < other; });
  return at->peer == peer ? *at : *peers.insert(at, {peer, {}, {}});
}

void add_peers(std::vector<PeerTraffic>& peers, const TransferPlan& plan, Index element_size, bool back) {
  for (const auto& transfer : back ? plan.recvs : plan.sends)
    traffic_with(peers, transfer.peer).sent += {1, transfer.box.volume() * element_size};
  for (const auto& transfer : back ? plan.sends : plan.recvs)
    traffic_with(peers, transfer.peer).received += {1, transfer.box.volume() * element_size};
}

namespace {

/// True if `rank` is the nearest of `ranks` to `receiver`, and the lowest of those that are equally near.
bool nearest(int rank, std::span<const int> ranks, int receiver, const Grid& grid) {
  const int mine = grid.distance(rank, receiver);
  return std::none_of(ranks.begin(), ranks.end(), [&](int other) {
    const int distance = grid.distance(other, receiver);
    return distance < mine || (distance == mine && other < rank);
  });
}

/// Orders boxes of the same number of dimensions, so that equal ones are neighbors.
bool before(const Box& a, const Box& b) {
  for (int d = 0; d < a.dims(); ++d) {
    if (a[d].lo != b[d].lo) return a[d].lo < b[d].lo;
    if (a[d].hi != b[d].hi) return a[d].hi < b[d].hi;
  }
  return false;
}

/// Returns the positions in `ranks` of the senders of `box`, in ascending order: for each distinct owned box that
/// intersects it, the replica nearest to `receiver`.
std::vector<std::size_t> senders(std::span<const int> ranks, std::span<const Box> owned, const Box& box, int receiver,
                                 const Grid& grid) {
  std::vector<std::size_t> holders, chosen;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (!intersect(owned[i], box).empty()) holders.push_back(i);
  std::stable_sort(holders.begin(), holders.end(),
                   [&](std::size_t a, std::size_t b) { return before(owned[a], owned[b]); });
  const auto distance = [&](std::size_t i) { return grid.distance(ranks[i], receiver); };
  for (std::size_t k = 0; k < holders.size(); ++k) {
    const std::size_t i = holders[k];
    if (k == 0 || before(owned[holders[k - 1]], owned[i]))
      chosen.push_back(i);
    else if (distance(i) < distance(chosen.back()))
      chosen.back() = i;
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace

TransferPlan plan_transfer(std::span<const int> ranks, std::span<const Box> owned, std::span<const Box> needed,
                           int rank, const Grid& grid) {
  require(owned.size() == ranks.size() && needed.size() == ranks.size(),
          "there must be one owned and one needed box per rank");
  TransferPlan plan;
  const auto me = static_cast<std::size_t>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
  std::vector<int> replicas;  // the ranks that own the same box
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (owned[i] == owned[me]) replicas.push_back(ranks[i]);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == me || owned[i] == owned[me]) continue;  // a replica needs no sender
    const Box part = intersect(owned[me], needed[i]);
    if (!part.empty() && nearest(rank, replicas, ranks[i], grid)) plan.sends.push_back({ranks[i], part});
  }
  for (const std::size_t i : senders(ranks, owned, needed[me], rank, grid))
    (i == me ? plan.locals : plan.recvs).push_back({ranks[i], intersect(owned[i], needed[me])});
  return plan;
}

TransferPlan plan_transfer(std::span<const Box> owned, std::span<const Box> needed, int rank, const Grid& grid) {
  std::vector<int> ranks(owned.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return plan_transfer(ranks, owned, needed, rank, grid);
}

AxisSet differing(const Layout& from, const Layout& to) {
  AxisSet set = 0;
  for (int d = 0; d < from.shape().dims(); ++d) {
    const auto &x = from.axes(d), &y = to.axes(d);
    const auto [in_x, in_y] = std::mismatch(x.begin(), x.end(), y.begin(), y.end());
    for (const auto* axis = in_x; axis != x.end(); ++axis) set |= AxisSet{1} << *axis;
    for (const auto* axis = in_y; axis != y.end(); ++axis) set |= AxisSet{1} << *axis;
  }
  return set;
}

// Along the axes over which `from` replicates, the nearest replica has the receiver's coordinates. So only ranks with
// the same coordinates there exchange anything, and no two of them hold the same elements.
TransferPlan plan_transfer(const Layout& from, const Layout& to, int rank) {
  const AxisSet axes = differing(from, to) & from.sharding();
  const Box owned = from.owned(rank), needed = to.owned(rank);
  const auto is_local = [&](const Transfer& each) { return each.peer == rank; };
  TransferPlan plan;
  plan.sends = to.holders(owned, rank, axes);
  std::erase_if(plan.sends, is_local);
  plan.recvs = from.holders(needed, rank, axes);
  std::copy_if(plan.recvs.begin(), plan.recvs.end(), std::back_inserter(plan.locals), is_local);
  std::erase_if(plan.recvs, is_local);
  return plan;
}

}  // namespace partita
