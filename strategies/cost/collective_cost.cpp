#include "strategies/cost/collective_cost.hpp"

#include "partita/base/error.hpp"

#include <algorithm>

namespace partita {

namespace {

void check(Verb verb, int ranks, double bytes) {
  if (algorithms(verb).empty()) fail("{} is not a collective", name(verb));
  if (ranks < 1) fail("{} needs at least one rank, not {}", name(verb), ranks);
  if (!(bytes >= 0)) fail("{} cannot move {} bytes", name(verb), bytes);
}

using Hops = std::vector<Hop>;
using enum Hop::Kind;

/// Calls visit(distance) for the distances 1, 2, 4, ... below `end`.
template <class Visit>
void each_doubling(int end, Visit&& visit) {
  for (int distance = 1; distance < end; distance *= 2) visit(distance);
}

/// Returns how many blocks rank 0 moves to the places of a fold at a distance in places: those of the places 0 to
/// distance - 1. Places below `rest` have two blocks.
double halved(const Fold& fold, int distance) { return distance + std::min(distance, fold.rest); }

// Thakur et al. 2005: log2 p (alpha + n beta + n gamma). A fold is one message before the algorithm, which is summed,
// and one back after it.
void recursive_doubling(int p, double n, Hops& hops) {
  const Fold fold(p);
  if (fold.rest > 0) hops.push_back({pair, 1, {2, 2 * n, n}});
  each_doubling(fold.core, [&](int d) { hops.push_back({pair, fold.first(d), {1, n, n}}); });
}

// Thakur et al. 2005: 2 log2 p alpha + 2 (p-1)/p n beta + (p-1)/p n gamma
void rabenseifner(int p, double n, Hops& hops) {
  const Fold fold(p);
  if (fold.rest > 0) hops.push_back({pair, 1, {2, 2 * n, n}});
  each_doubling(fold.core, [&](int d) {
    const double part = d * n / fold.core;
    hops.push_back({pair, fold.first(d), {2, 2 * part, part}});
  });
}

void all_reduce(CollectiveAlgorithm algorithm, int p, double n, Hops& hops) {
  if (algorithm == CollectiveAlgorithm::recursive_doubling) return recursive_doubling(p, n, hops);
  if (algorithm == CollectiveAlgorithm::rabenseifner) return rabenseifner(p, n, hops);
  if (algorithm == CollectiveAlgorithm::binomial)  // a reduce and a broadcast, Thakur et al. 2005
    return each_doubling(p, [&](int d) { hops.push_back({tree, d, {2, 2 * n, n}}); });
  const double part = (p - 1.0) / p * n;  // Thakur et al. 2005: p-1 blocks of n/p to sum, and p-1 to gather
  hops.push_back({shift, 1, {2 * (p - 1.0), 2 * part, part}});
}

void all_gather(CollectiveAlgorithm algorithm, int p, double n, Hops& hops) {
  if (algorithm == CollectiveAlgorithm::ring)  // Thakur et al. 2005
    return hops.push_back({shift, 1, {p - 1.0, (p - 1.0) / p * n, 0}});
  if (algorithm == CollectiveAlgorithm::bruck)  // Bruck et al. 1997
    return each_doubling(p, [&](int d) { hops.push_back({shift, d, {1, std::min(d, p - d) * n / p, 0}}); });
  const Fold fold(p);  // a folded rank sends a block and gets everything back
  if (fold.rest > 0) hops.push_back({pair, 1, {2, n / p + n, 0}});
  each_doubling(fold.core,  // Thakur et al. 2005
                [&](int d) {
                  hops.push_back({pair, fold.first(d), {1, halved(fold, d) * n / p, 0}});
                });
}

void reduce_scatter(CollectiveAlgorithm algorithm, int p, double n, Hops& hops) {
  const double part = (p - 1.0) / p * n;  // Thakur et al. 2005
  if (algorithm == CollectiveAlgorithm::ring) return hops.push_back({shift, 1, {p - 1.0, part, part}});
  if (algorithm == CollectiveAlgorithm::pairwise) return hops.push_back({direct, p - 1, {p - 1.0, part, part}});
  const Fold fold(p);  // a folded rank sends everything and gets a block back
  if (fold.rest > 0) hops.push_back({pair, 1, {2, n + n / p, n}});
  each_doubling(fold.core, [&](int d) {  // Thakur et al. 2005
    const double halves = halved(fold, d) * n / p;
    hops.push_back({pair, fold.first(d), {1, halves, halves}});
  });
}

void broadcast(CollectiveAlgorithm algorithm, int p, double n, Hops& hops) {
  if (algorithm == CollectiveAlgorithm::binomial)
    return each_doubling(p, [&](int d) { hops.push_back({tree, d, {1, n, 0}}); });
  // Barnett, van de Geijn et al. 1994
  each_doubling(p, [&](int d) { hops.push_back({tree, d, {1, std::min(d, p - d) * n / p, 0}}); });
  hops.push_back({shift, 1, {p - 1.0, (p - 1.0) / p * n, 0}});
}

void all_to_all(CollectiveAlgorithm algorithm, int p, double n, Hops& hops) {
  if (algorithm == CollectiveAlgorithm::pairwise)
    return hops.push_back({direct, p - 1, {p - 1.0, (p - 1.0) / p * n, 0}});
  // Bruck et al. 1997: the round of a bit moves the blocks whose distance (1 to p-1) has this bit set. For a power of
  // two these are half of the blocks.
  each_doubling(p, [&](int bit) {
    const double blocks = p / (2 * bit) * bit + std::max(p % (2 * bit) - bit, 0);
    hops.push_back({shift, bit, {1, blocks / p * n, 0}});
  });
}

}  // namespace

void collective_hops(Verb verb, CollectiveAlgorithm algorithm, int ranks, double bytes, Hops& hops) {
  check(verb, ranks, bytes);
  check_algorithm(verb, algorithm);
  hops.clear();
  if (ranks == 1 || bytes == 0) return;
  switch (verb) {
    case Verb::all_reduce: return all_reduce(algorithm, ranks, bytes, hops);
    case Verb::all_gather: return all_gather(algorithm, ranks, bytes, hops);
    case Verb::reduce_scatter: return reduce_scatter(algorithm, ranks, bytes, hops);
    case Verb::broadcast: return broadcast(algorithm, ranks, bytes, hops);
    case Verb::all_to_all: return all_to_all(algorithm, ranks, bytes, hops);
    case Verb::none:
    case Verb::exchange: break;
  }
  broken("not a collective");
}

CollectiveCost collective_cost(Verb verb, CollectiveAlgorithm algorithm, int ranks, double bytes) {
  Hops hops;
  collective_hops(verb, algorithm, ranks, bytes, hops);
  CollectiveCost sum;
  for (const Hop& hop : hops) sum += hop.cost;
  return sum;
}

}  // namespace partita
