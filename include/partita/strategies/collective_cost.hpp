#pragma once

#include "partita/base/algorithm.hpp"
#include "partita/base/traffic.hpp"
#include "partita/base/types.hpp"

#include <vector>

namespace partita {

/// One call of a collective over point-to-point messages, as every rank knows it. `counts` are elements, as the verb has
/// them: one number for all_reduce and broadcast, one a rank for all_gather and reduce_scatter, for all_to_all ranks *
/// ranks, of which [i * ranks + j] go from rank i to rank j.
struct CollectiveCall {
  Verb verb = Verb::all_reduce;
  Algorithm algorithm = Algorithm::ring;
  int ranks = 1;
  std::vector<Index> counts;
  DType dtype = DType::f32;
  int root = 0;  ///< of a broadcast
};

/// The messages that a rank sends and their bytes, to the last one, as the algorithm arranges them (textbook.hpp runs
/// them): blocks may be uneven, and empty ones send nothing. Throws Error for an algorithm that the verb does not have,
/// and for counts or ranks that cannot be.
Traffic sent(const CollectiveCall& call, int rank);

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
CollectiveCost collective_cost(Verb verb, Algorithm algorithm, int ranks, double bytes);

/// What MPICH takes at its default switch points (Thakur, Rabenseifner, Gropp 2005; the MPIR_CVAR_*_MSG_SIZE of MPICH 3
/// and 4, algorithms within one node of shared memory left aside). `bytes` as above; the dtype says whether an all_reduce has
/// an element for each rank. Where MPICH has two of a kind, the one that we have: pairwise for an all_to_all that posts
/// all messages at once, scatter_all_gather for one that gathers by recursive doubling.
/// Throws Error for a verb that is no collective, less than one rank or less than no bytes.
Algorithm choose(Verb verb, int ranks, Index bytes, DType dtype = DType::f32);

/// The algorithm with the smallest `collective_cost` in seconds, the first of `algorithms` among equals.
/// Throws Error as `choose` does.
Algorithm cheapest(Verb verb, int ranks, double bytes, double alpha, double beta, double gamma);

}  // namespace partita
