#pragma once

#include "partita/base/collective_algorithm.hpp"
#include "partita/base/traffic.hpp"
#include "partita/base/types.hpp"

#include <vector>

namespace partita {

/// One call of a collective that is built from point-to-point messages. It describes the whole call, so it is equal on
/// every rank.
struct CollectiveCall {
  Verb verb = Verb::all_reduce;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  int ranks = 1;
  /// Elements. all_reduce and broadcast have one count; all_gather and reduce_scatter have one count per rank.
  /// all_to_all has ranks * ranks counts: counts[i * ranks + j] elements go from rank i to rank j.
  std::vector<Index> counts;
  DType dtype = DType::f32;
  int root = 0;  ///< rank that a broadcast starts from
};

/// Returns the exact number of messages and bytes that a rank sends. textbook_algorithms.hpp has the same. Blocks may
/// be uneven; an empty block sends no message. Throws Error if the verb does not have the algorithm, or if counts, rank
/// or root are invalid.
Traffic collective_traffic(const CollectiveCall& call, int rank);

}  // namespace partita
