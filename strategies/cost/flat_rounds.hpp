#pragma once

#include "strategies/cost/collective_rounds.hpp"

namespace partita {

/// Adds the rounds of one rank in a collective that takes no notice of levels. `me` is an index into `ranks`, and
/// `most_distances` as in CollectiveRounds.
void add_flat_rounds(Verb verb, CollectiveAlgorithm algorithm, std::span<const int> ranks, int me, double bytes,
                     std::vector<CollectiveRound>& rounds, int most_distances = std::numeric_limits<int>::max());

}  // namespace partita
