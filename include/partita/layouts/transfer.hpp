#pragma once

#include "partita/base/box.hpp"
#include "partita/base/grid.hpp"
#include "partita/base/traffic.hpp"
#include "partita/base/transfer.hpp"
#include "partita/layouts/layout.hpp"

#include <span>
#include <string_view>
#include <vector>

namespace partita {

/// What one rank sends, receives and copies from itself. Between a pair of ranks, sends and receives are listed in the
/// same order, so that the order alone identifies a message.
struct TransferPlan {
  std::vector<Transfer> sends, recvs, locals;
  /// The number of elements in all sends.
  Index sent() const;
  /// The messages that the rank sends and their bytes, if an element has `element_size` bytes.
  Traffic traffic(Index element_size) const;
};

/// The elements of a transfer that pass through buffers: those of boxes that are not contiguous in memory, and all that
/// are added where they arrive.
struct PackedElements {
  Index sent = 0, received = 0;
};
/// Returns what a transfer packs if it reads a tensor that holds `from` and fills one that holds `to`, both with the
/// dimensions `names`.
PackedElements packed_elements(const TransferPlan& plan, std::string_view names, const Box& from, const Box& to);
/// The same for the adjoint, which sends back what `plan` receives, and adds it.
PackedElements packed_by_adjoint(const TransferPlan& plan, std::string_view names, const Box& from);

/// What a rank sends to one peer, and receives from it.
struct PeerTraffic {
  int peer = 0;
  Traffic sent, received;
  bool operator==(const PeerTraffic&) const = default;
};

/// Returns what a rank sends to all its peers.
Traffic sent_to_all(const std::vector<PeerTraffic>& peers);

/// Returns the entry of a peer in `peers`, which ascends and has one entry per peer. Adds it if there is none.
PeerTraffic& traffic_with(std::vector<PeerTraffic>& peers, int peer);

/// Adds a transfer's messages to `peers`, which ascends and has one entry per peer. An element has `element_size`
/// bytes. With `back` the transfer runs backward, as an adjoint does: a rank sends what it would receive.
void add_peers(std::vector<PeerTraffic>& peers, const TransferPlan& plan, Index element_size, bool back = false);

/// Plans a transfer. Halos, redistributions and stage boundaries all use it. `owned[r]` is the box that rank r holds,
/// `needed[r]` the box that it must get. Owned boxes are equal or disjoint. Ranks with equal owned boxes are replicas:
/// the one nearest to the receiver sends (by `grid.distance`, then the lowest rank), so a receiver takes from the
/// replica that shares its other coordinates. A rank copies what it owns itself. Elements that no rank owns are not
/// transferred.
TransferPlan plan_transfer(std::span<const Box> owned, std::span<const Box> needed, int rank, const Grid& grid);

/// Plans a transfer among the ranks in `ranks` alone, which ascend and include `rank`. `owned[i]` and `needed[i]`
/// belong to `ranks[i]`.
TransferPlan plan_transfer(std::span<const int> ranks, std::span<const Box> owned, std::span<const Box> needed,
                           int rank, const Grid& grid);

/// Returns the axes by which the two layouts differ: an axis that shards a dimension in one layout but not in the
/// other, or at another position. A transfer between the layouts is between ranks that differ along these axes only.
AxisSet differing(const Layout& from, const Layout& to);

/// Plans the transfer from one layout to another of the same shape and grid.
TransferPlan plan_transfer(const Layout& from, const Layout& to, int rank);

}  // namespace partita
