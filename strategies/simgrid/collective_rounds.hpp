#pragma once

#include "partita/strategies/machine/machine.hpp"
#include "strategies/cost/collective_options.hpp"

#include <span>
#include <vector>

namespace partita {

/// A message to or from a rank of the world.
struct SizedMessage {
  int peer = 0;
  double bytes = 0;
};

/// What a rank does at a time in a collective: it sends and receives, waits for all of that, and combines.
struct CollectiveRound {
  std::vector<SizedMessage> sent, received;
  double combined = 0;  ///< bytes that it adds to as many others
};

/// Returns what one rank does in a collective, message by message: the algorithms that CollectiveOption prices, with
/// the sources given there. `ranks` are those of the world that take part, ascending; `me` is an index into them, and
/// `bytes` counts as in Traffic. Blocks are equal. If units hold different numbers of these ranks, each share is that
/// of the largest unit, and ranks of smaller units have several.
/// Throws Error for LevelUse::in_network: there the switches add, which no messages between ranks describe.
std::vector<CollectiveRound> collective_rounds(Verb verb, const CollectiveOption& option, const Machine& machine,
                                               std::span<const int> ranks, int me, double bytes);

}  // namespace partita
