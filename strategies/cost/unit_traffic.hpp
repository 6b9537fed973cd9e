#pragma once

#include "partita/base/grid.hpp"
#include "partita/layouts/transfer.hpp"
#include "partita/strategies/machine/machine.hpp"

#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace partita {

// The bytes that the links of a unit of a machine carry when all of its ranks run the same exchange. The ranks share
// these links, e.g. the adapters of a node, however unequal their messages are.

/// What a rank sends or what it receives.
using Direction = Traffic PeerTraffic::*;

/// Returns the bytes that all ranks of a rank's unit exchange over a level. Empty: as many of them as reach so far
/// exchange as much as the rank.
using BytesOfUnit = std::function<double(int level, Direction direction)>;

/// Returns the bytes that leave, or reach, the unit of the level below `level` in which a rank of the grid lies, if all
/// ranks exchange as much as `peers` says of this rank, with others that lie in the same direction.
double unit_bytes_if_alike(const Machine& machine, const Grid& grid, const std::vector<PeerTraffic>& peers, int rank,
                           int level, Direction direction);

/// The same for ranks that exchange different numbers of bytes.
class UnitTraffic {
 public:
  /// Returns whom a rank of the grid sends to and receives from in the exchange; null if it does neither.
  using PeersOf = std::function<const std::vector<PeerTraffic>*(int rank)>;

  /// @pre The machine and the grid outlive it.
  UnitTraffic(const Machine& machine, const Grid& grid, PeersOf peers_of)
      : machine_(machine), grid_(grid), peers_of_(std::move(peers_of)) {}
  double bytes(int rank, int level, Direction direction);

 private:
  const Machine& machine_;
  const Grid& grid_;
  PeersOf peers_of_;
  std::map<std::tuple<int, int, bool>, double> known_;  // by level, first rank of the unit, and direction
};

}  // namespace partita
