#pragma once

#include "partita/strategies/machine/machine.hpp"
#include "strategies/cost/collective_options.hpp"

#include <limits>
#include <memory>
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
  double times = 1;     ///< how many rounds alike there are, one after the other
  int phase = 0;        ///< by levels: the number of the part to which it belongs; each runs on one level
};

/// What the ranks of a collective do, message by message: the algorithms that CollectiveOption prices, with the sources
/// given there.
class CollectiveRounds {
 public:
  /// `ranks`: those of the world that take part, ascending. `bytes` counts as in Traffic. `most_distances`: where each
  /// rank of a flat collective sends to all others in turn, at most so many distances stand for all of them.
  /// @pre The machine and the ranks outlive it.
  CollectiveRounds(Verb verb, const CollectiveOption& way, const Machine& machine, std::span<const int> ranks,
                   double bytes, int most_distances = std::numeric_limits<int>::max());
  ~CollectiveRounds();

  /// Returns the rounds of one of them; `me` is an index into the ranks. Blocks are equal. If units hold different
  /// numbers of these ranks, each share is that of the largest unit, and ranks of smaller units have several. With
  /// LevelUse::in_network these are the rounds inside units: no messages between ranks describe that the switches add.
  std::vector<CollectiveRound> of(int me);

 private:
  class ByLevels;
  Verb verb_;
  CollectiveAlgorithm algorithm_;
  std::span<const int> ranks_;
  double bytes_;
  int most_distances_;
  std::unique_ptr<ByLevels> by_levels_;  // null for flat ones
};

}  // namespace partita
