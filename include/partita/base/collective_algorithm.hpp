#pragma once

#include "partita/base/traffic.hpp"

#include <bit>
#include <span>
#include <string_view>

namespace partita {

/// How the messages of a collective are arranged; `algorithms` says which verbs have which. p ranks, n bytes of the full
/// vector. Sources: [T] Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, 2005;
/// [B] Bruck et al.: Efficient Algorithms for All-to-All Communications, 1997; [G] Barnett, van de Geijn et al.:
/// Interprocessor Collective Communication Library, 1994.
enum class CollectiveAlgorithm : std::uint8_t {
  recursive_doubling,  ///< pairs at distances 1, 2, 4, ... exchange all that they have [T]
  recursive_halving,   ///< pairs at distances ..., 4, 2, 1 exchange the halves that they do not keep [T]
  ring,                ///< p-1 times a block of each rank moves to its right neighbour [T]
  pairwise,            ///< in round k everyone sends to the rank k above it what is meant for that [T]
  binomial,            ///< a tree that doubles in every round; an all_reduce goes up and down it [T]
  rabenseifner,        ///< a reduce_scatter by recursive halving, an all_gather by recursive doubling [T]
  bruck,               ///< in round k whatever has to travel 2^k ranks does so in one message [B]
  scatter_all_gather,  ///< a scatter down a binomial tree, an all_gather round the ring [G]
};

/// e.g. "recursive_doubling".
std::string_view name(CollectiveAlgorithm algorithm);

/// Those that a verb has; none for a verb that is no collective.
std::span<const CollectiveAlgorithm> algorithms(Verb verb);

/// Throws Error, naming those that there are, if the verb does not have the algorithm.
void check_algorithm(Verb verb, CollectiveAlgorithm algorithm);

/// Ranks folded to a power of two, for algorithms that pair them: of the first 2*rest ranks each odd one hands what it
/// has to its left neighbour, which acts for both in one place. The ranks of consecutive places are consecutive.
///
///     ranks   0 1 | 2 3 | 4 | 5        p = 6
///     places   0  |  1  | 2 | 3        core = 4, rest = 2
struct Fold {
  int core;  ///< places: the largest power of two that is no larger than the number of ranks
  int rest;  ///< ranks beyond that

  explicit constexpr Fold(int ranks)
      : core(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))), rest(ranks - core) {}
  /// The rank that acts in a place, and the first behind the last place's ranks for `core`.
  constexpr int first(int place) const { return place < rest ? 2 * place : place + rest; }
  constexpr int place(int rank) const { return rank < 2 * rest ? rank / 2 : rank - rest; }
  /// True for a rank that its left neighbour acts for, and for one that acts for its right neighbour.
  constexpr bool idle(int rank) const { return rank < 2 * rest && rank % 2 == 1; }
  constexpr bool doubled(int rank) const { return rank < 2 * rest && rank % 2 == 0; }
};

}  // namespace partita
