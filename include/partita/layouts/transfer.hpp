#pragma once

#include "partita/base/box.hpp"
#include "partita/base/grid.hpp"
#include "partita/base/transfer.hpp"
#include "partita/layouts/layout.hpp"

#include <span>
#include <vector>

namespace partita {

/// What one rank sends, receives and copies from itself. Between a pair of ranks, sends and receives are listed in the
/// same order, so that messages need no other name than their order.
struct TransferPlan {
  std::vector<Transfer> sends, recvs, locals;
  /// Elements in all sends.
  Index sent() const;
};

/// The one planner: halos, redistributions and stage boundaries. `owned[r]` is what rank r holds, `needed[r]` what it
/// is to have. Equal owned boxes are replicas: of those the one nearest to the receiver (by `grid.distance`, then the
/// lowest) sends, so a receiver takes from the replica that shares its other coordinates. What a rank owns itself it
/// copies. Owned boxes are equal or disjoint; what no rank owns is not transferred.
TransferPlan plan_transfer(std::span<const Box> owned, std::span<const Box> needed, int rank, const Grid& grid);

/// The same among some ranks alone, ascending, `rank` one of them: what `ranks[i]` owns and needs is at i.
TransferPlan plan_transfer(std::span<const int> ranks, std::span<const Box> owned, std::span<const Box> needed,
                           int rank, const Grid& grid);

/// The axes that cut some dimension in one layout and not, or not as far out, in the other: what goes from the one to the other
/// goes between ranks that differ along these alone.
AxisSet differing(const Layout& from, const Layout& to);

/// From one layout to another of the same shape and grid.
TransferPlan plan_transfer(const Layout& from, const Layout& to, int rank);

}  // namespace partita
