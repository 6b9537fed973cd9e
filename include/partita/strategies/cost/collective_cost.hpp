#pragma once

#include "partita/base/collective_algorithm.hpp"
#include "partita/base/traffic.hpp"
#include "partita/base/types.hpp"

#include <vector>

namespace partita {

/// One call of a collective over point-to-point messages, as every rank knows it. `counts` are elements, as the verb has
/// them: one number for all_reduce and broadcast, one a rank for all_gather and reduce_scatter, for all_to_all ranks *
/// ranks, of which [i * ranks + j] go from rank i to rank j.
struct CollectiveCall {
  Verb verb = Verb::all_reduce;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  int ranks = 1;
  std::vector<Index> counts;
  DType dtype = DType::f32;
  int root = 0;  ///< of a broadcast
};

/// The messages that a rank sends and their bytes, to the last one, as the algorithm arranges them (textbook.hpp runs
/// them): blocks may be uneven, and empty ones send nothing. Throws Error for an algorithm that the verb does not have,
/// and for counts or ranks that cannot be.
Traffic collective_traffic(const CollectiveCall& call, int rank);

/// What a collective costs on the path that takes longest, where a message of b bytes takes alpha + b beta seconds, both
/// ways at once, and b bytes are combined in b gamma (Thakur, Rabenseifner, Gropp 2005, section 3).
struct CollectiveCost {
  double rounds = 0;    ///< messages, one after the other
  double bytes = 0;     ///< that they have
  double combined = 0;  ///< bytes that are added to as many others, or compared with them

  /// alpha in seconds, beta and gamma in seconds a byte.
  double seconds(double alpha, double beta, double gamma) const {
    return rounds * alpha + bytes * beta + combined * gamma;
  }
  bool operator==(const CollectiveCost&) const = default;
};

/// The cost of a collective of `bytes` (of the full vector, as Traffic counts it) in equal blocks; nothing for one rank
/// and for no bytes. Any number of ranks: where an algorithm pairs them, those beyond a power of two fold, which is
/// counted. Throws Error for an algorithm that the verb does not have, less than one rank or less than no bytes.
CollectiveCost collective_cost(Verb verb, CollectiveAlgorithm algorithm, int ranks, double bytes);

}  // namespace partita
