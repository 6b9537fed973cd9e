#pragma once

#include "partita/base/traffic.hpp"

#include <bit>
#include <span>
#include <string_view>

namespace partita {

/// The algorithm of a collective: who sends what to whom in which round. `algorithms` lists the algorithms of each
/// collective. Below, p is the number of ranks.
/// Sources: [T] Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, 2005;
/// [B] Bruck et al.: Efficient Algorithms for All-to-All Communications, 1997;
/// [G] Barnett, van de Geijn et al.: Interprocessor Collective Communication Library, 1994.
enum class CollectiveAlgorithm : std::uint8_t {
  recursive_doubling,  ///< ranks at distance 1, 2, 4, ... exchange everything they have [T]
  recursive_halving,   ///< ranks at distance ..., 4, 2, 1 exchange the halves that they do not keep [T]
  ring,                ///< in each of p-1 rounds every rank sends one block to its right neighbor [T]
  pairwise,            ///< in round k every rank sends directly to the rank k above it [T]
  binomial,            ///< a tree that doubles in every round; an all_reduce goes up and then down the tree [T]
  rabenseifner,        ///< a reduce_scatter by recursive halving, then an all_gather by recursive doubling [T]
  bruck,               ///< in round k one message carries every block that has to travel 2^k ranks [B]
  scatter_all_gather,  ///< a scatter down a binomial tree, then an all_gather around the ring [G]
};

/// Returns e.g. "recursive_doubling".
std::string_view name(CollectiveAlgorithm algorithm);

/// Returns the algorithms of a collective; empty if `verb` is not a collective.
std::span<const CollectiveAlgorithm> algorithms(Verb verb);

/// Throws Error, with the list of valid algorithms, if `algorithm` is not an algorithm of `verb`.
void check_algorithm(Verb verb, CollectiveAlgorithm algorithm);

/// How a collective uses the levels of a machine. A library may have some of these ways.
enum class LevelUse : std::uint8_t {
  flat,        ///< the algorithm runs over all ranks in their order, as if there were no levels
  one_shot,    ///< every rank sends everything to all others at once
  all_links,   ///< rings that pass the units in turn, one for each rank of a unit, so that all links of a unit are busy
  by_levels,   ///< inside units first; then equal ranks of all units, each with its share; then inside units again
  in_network,  ///< as by_levels, but the switches of the outermost level add
};

/// Returns e.g. "by-levels".
std::string_view name(LevelUse use);

/// Folds the ranks to a power of two, for algorithms that pair them. Let `rest` be the number of ranks beyond the power
/// of two. Among the first 2*rest ranks, each odd rank hands its data to its left neighbor, which then acts for both in
/// one place. All other ranks have a place of their own. Consecutive places hold consecutive ranks.
///
///     ranks   0 1 | 2 3 | 4 | 5        p = 6
///     places   0  |  1  | 2 | 3        core = 4, rest = 2
struct Fold {
  int core;  ///< number of places: the largest power of two that does not exceed the number of ranks
  int rest;  ///< number of ranks minus `core`

  explicit constexpr Fold(int ranks)
      : core(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))), rest(ranks - core) {}
  /// The first rank of a place, which acts for the place. first(core) is the number of ranks.
  constexpr int first(int place) const { return place < rest ? 2 * place : place + rest; }
  constexpr int place(int rank) const { return rank < 2 * rest ? rank / 2 : rank - rest; }
  /// Returns true if the left neighbor acts for `rank`.
  constexpr bool idle(int rank) const { return rank < 2 * rest && rank % 2 == 1; }
  /// Returns true if `rank` acts for its right neighbor as well.
  constexpr bool doubled(int rank) const { return rank < 2 * rest && rank % 2 == 0; }
};

}  // namespace partita
