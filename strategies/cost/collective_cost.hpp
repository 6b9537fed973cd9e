#pragma once

#include "partita/base/collective_algorithm.hpp"
#include "partita/base/traffic.hpp"
#include "partita/base/types.hpp"

#include <vector>

namespace partita {

/// The cost of a collective along its critical path. A message of b bytes takes alpha + b beta seconds, and a rank can
/// send and receive at the same time. Combining b bytes takes b gamma seconds (Thakur, Rabenseifner, Gropp 2005,
/// section 3).
struct CollectiveCost {
  double rounds = 0;    ///< messages sent one after the other
  double bytes = 0;     ///< bytes of these messages
  double combined = 0;  ///< bytes that a sum, maximum or minimum combines with as many others

  /// alpha is in seconds; beta and gamma are in seconds per byte.
  double seconds(double alpha, double beta, double gamma) const {
    return rounds * alpha + bytes * beta + combined * gamma;
  }
  CollectiveCost& operator+=(const CollectiveCost& other) {
    rounds += other.rounds;
    bytes += other.bytes;
    combined += other.combined;
    return *this;
  }
  bool operator==(const CollectiveCost&) const = default;
};

/// Messages of a collective that are alike: who sends at the same time, and how far. Distances are counted in ranks of
/// the collective, on the path of its first rank.
struct Hop {
  enum class Kind : std::uint8_t {
    shift,   ///< every rank sends to the rank `distance` above it
    pair,    ///< every rank exchanges with the rank at `distance`
    tree,    ///< one rank of every 2 * `distance` sends
    direct,  ///< every rank sends to the ranks at distance 1, 2, ... `distance`, one after the other
  };
  Kind kind = Kind::shift;
  int distance = 1;
  CollectiveCost cost;
};

/// Replaces `hops` by the messages on the longest path of a collective. Arguments and errors are those of
/// collective_cost(), which is the sum over the hops. There are none for one rank or zero bytes.
void collective_hops(Verb verb, CollectiveAlgorithm algorithm, int ranks, double bytes, std::vector<Hop>& hops);

/// Returns the cost of a collective with equal blocks. `bytes` is the size of the full vector, as in Traffic. The cost
/// is zero for one rank or zero bytes. The number of ranks need not be a power of two: an algorithm that pairs ranks
/// folds the others in, and the cost includes this. Throws Error if the verb does not have the algorithm, if `ranks` is
/// less than 1, or if `bytes` is negative.
CollectiveCost collective_cost(Verb verb, CollectiveAlgorithm algorithm, int ranks, double bytes);

}  // namespace partita
