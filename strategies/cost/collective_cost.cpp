#include "strategies/cost/collective_cost.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <bit>

namespace partita {

namespace {

int ceil_log2(int n) { return n <= 1 ? 0 : std::bit_width(static_cast<unsigned>(n - 1)); }

void check(Verb verb, int ranks, double bytes) {
  if (algorithms(verb).empty()) fail("{} is not a collective", name(verb));
  if (ranks < 1) fail("{} needs at least one rank, not {}", name(verb), ranks);
  if (!(bytes >= 0)) fail("{} cannot move {} bytes", name(verb), bytes);
}

/// Returns how many blocks recursive halving or doubling moves between the places of a fold, on the path of rank 0. At
/// distance d these are the blocks of places 0 to d-1; places below `rest` have two blocks. If no rank folds, the
/// result is the number of ranks - 1.
double halved(const Fold& fold) {
  double blocks = 0;
  for (int distance = 1; distance < fold.core; distance *= 2) blocks += distance + std::min(distance, fold.rest);
  return blocks;
}

CollectiveCost all_reduce(CollectiveAlgorithm algorithm, int p, double n) {
  const Fold fold(p);
  // A fold is one message before the algorithm, which is summed, and one back after it.
  const double rounds = ceil_log2(fold.core), folds = fold.rest > 0 ? 1 : 0;
  if (algorithm == CollectiveAlgorithm::recursive_doubling)  // Thakur et al. 2005: log2 p (alpha + n beta + n gamma)
    return {rounds + 2 * folds, (rounds + 2 * folds) * n, (rounds + folds) * n};
  if (algorithm == CollectiveAlgorithm::rabenseifner) {
    // Thakur et al. 2005: 2 log2 p alpha + 2 (p-1)/p n beta + (p-1)/p n gamma
    const double part = (fold.core - 1.0) / fold.core * n;
    return {2 * (rounds + folds), 2 * (part + folds * n), part + folds * n};
  }
  if (algorithm == CollectiveAlgorithm::binomial) {  // a reduce and a broadcast, Thakur et al. 2005
    const double depth = ceil_log2(p);
    return {2 * depth, 2 * depth * n, depth * n};
  }
  const double part = (p - 1.0) / p * n;  // Thakur et al. 2005: p-1 blocks of n/p to sum, and p-1 to gather
  return {2 * (p - 1.0), 2 * part, part};
}

CollectiveCost all_gather(CollectiveAlgorithm algorithm, int p, double n) {
  const double part = (p - 1.0) / p * n;
  if (algorithm == CollectiveAlgorithm::ring) return {p - 1.0, part, 0};  // Thakur et al. 2005
  if (algorithm == CollectiveAlgorithm::bruck)
    return {static_cast<double>(ceil_log2(p)), part, 0};  // Bruck et al. 1997
  const Fold fold(p);
  const double rounds = ceil_log2(fold.core);
  if (fold.rest == 0) return {rounds, part, 0};            // Thakur et al. 2005
  return {rounds + 2, (1 + halved(fold) + p) / p * n, 0};  // the fold sends a block and gets everything back
}

CollectiveCost reduce_scatter(CollectiveAlgorithm algorithm, int p, double n) {
  const double part = (p - 1.0) / p * n;
  if (algorithm != CollectiveAlgorithm::recursive_halving) return {p - 1.0, part, part};  // Thakur et al. 2005
  const Fold fold(p);
  const double rounds = ceil_log2(fold.core);
  if (fold.rest == 0) return {rounds, part, part};  // Thakur et al. 2005
  const double halves = halved(fold) / p * n;       // the fold sends everything and gets a block back
  return {rounds + 2, n + halves + n / p, n + halves};
}

CollectiveCost broadcast(CollectiveAlgorithm algorithm, int p, double n) {
  const double depth = ceil_log2(p);
  if (algorithm == CollectiveAlgorithm::binomial) return {depth, depth * n, 0};
  return {depth + p - 1, 2 * (p - 1.0) / p * n, 0};  // Barnett, van de Geijn et al. 1994
}

CollectiveCost all_to_all(CollectiveAlgorithm algorithm, int p, double n) {
  if (algorithm == CollectiveAlgorithm::pairwise) return {p - 1.0, (p - 1.0) / p * n, 0};
  // Bruck et al. 1997: the round of a bit moves the blocks whose distance (1 to p-1) has this bit set. For a power of
  // two these are half of the blocks.
  double blocks = 0;
  for (int bit = 1; bit < p; bit *= 2) blocks += p / (2 * bit) * bit + std::max(p % (2 * bit) - bit, 0);
  return {static_cast<double>(ceil_log2(p)), blocks / p * n, 0};
}

}  // namespace

CollectiveCost collective_cost(Verb verb, CollectiveAlgorithm algorithm, int ranks, double bytes) {
  check(verb, ranks, bytes);
  check_algorithm(verb, algorithm);
  if (ranks == 1 || bytes == 0) return {};
  switch (verb) {
    case Verb::all_reduce: return all_reduce(algorithm, ranks, bytes);
    case Verb::all_gather: return all_gather(algorithm, ranks, bytes);
    case Verb::reduce_scatter: return reduce_scatter(algorithm, ranks, bytes);
    case Verb::broadcast: return broadcast(algorithm, ranks, bytes);
    case Verb::all_to_all: return all_to_all(algorithm, ranks, bytes);
    case Verb::none:
    case Verb::exchange: break;
  }
  broken("not a collective");
}

}  // namespace partita
