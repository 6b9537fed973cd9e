#include "test/support/collective_traffic.hpp"
#include "partita/base/error.hpp"
#include "partita/layouts/layout.hpp"
#include "strategies/cost/collective_cost.hpp"

#include <algorithm>
#include <bit>

namespace partita {

namespace {

int ceil_log2(int n) { return n <= 1 ? 0 : std::bit_width(static_cast<unsigned>(n - 1)); }

/// Returns the traffic of one message, or no traffic if it is empty.
Traffic message(Index bytes) { return bytes > 0 ? Traffic{1, bytes} : Traffic{}; }
Traffic messages(Index number, Index bytes) { return bytes > 0 ? Traffic{number, number * bytes} : Traffic{}; }
Traffic operator+(Traffic a, const Traffic& b) { return a += b; }

/// Consecutive blocks of a buffer; all sizes are in bytes.
class Cut {
 public:
  Cut(const std::vector<Index>& counts, DType dtype) : ends_{0} {
    for (const Index count : counts) ends_.push_back(ends_.back() + count * size_of(dtype));
  }
  int blocks() const { return static_cast<int>(ends_.size()) - 1; }
  /// Returns the size of blocks `first` to `last` - 1.
  Index range(int first, int last) const { return ends_[last] - ends_[first]; }
  Index all() const { return ends_.back(); }
  Index operator[](int block) const { return range(block, block + 1); }
  /// Returns the size of `number` blocks from `first` on. After the last block it continues with block 0.
  Index turned(int first, int number) const {
    const int behind = std::max(first + number - blocks(), 0);
    return range(first, first + number - behind) + range(0, behind);
  }
  /// Returns the same bytes, divided into the places of a fold.
  Cut onto(const Fold& fold) const {
    Cut places = *this;
    places.ends_.clear();
    for (int place = 0; place <= fold.core; ++place) places.ends_.push_back(ends_[fold.first(place)]);
    return places;
  }

 private:
  std::vector<Index> ends_;
};

/// Returns the traffic of all blocks except `one`, with one message per block.
Traffic all_but(const Cut& cut, int one) {
  Traffic traffic;
  for (int block = 0; block < cut.blocks(); ++block)
    if (block != one) traffic += message(cut[block]);
  return traffic;
}

/// Recursive halving: at each distance a rank sends the blocks of the other half.
Traffic halving(const Cut& cut, int place) {
  Traffic traffic;
  for (int distance = 1; distance < cut.blocks(); distance *= 2) {
    const int other = (place / distance ^ 1) * distance;
    traffic += message(cut.range(other, other + distance));
  }
  return traffic;
}

/// Recursive doubling: at each distance a rank sends the blocks of its own half.
Traffic doubling(const Cut& cut, int place) {
  Traffic traffic;
  for (int distance = 1; distance < cut.blocks(); distance *= 2) {
    const int own = place / distance * distance;
    traffic += message(cut.range(own, own + distance));
  }
  return traffic;
}

/// Returns how many children a rank has in a binomial tree that numbers the ranks from the root. It has one at each
/// power of two above its number for which a rank exists.
int children(int number, int ranks) {
  return std::max(ceil_log2(ranks - number) - static_cast<int>(std::bit_width(static_cast<unsigned>(number))), 0);
}

Traffic all_reduce(const CollectiveCall& call, int rank) {
  const int p = call.ranks;
  const Fold fold(p);
  const Index count = call.counts[0], n = count * size_of(call.dtype);
  switch (call.algorithm) {
    case CollectiveAlgorithm::recursive_doubling:
      if (rank >= fold.core) return message(n);
      return messages(ceil_log2(fold.core) + (rank < fold.rest ? 1 : 0), n);
    case CollectiveAlgorithm::rabenseifner: {
      if (fold.idle(rank)) return message(n);
      const Cut cut(balanced_counts(count, fold.core), call.dtype);
      const int place = fold.place(rank);
      return halving(cut, place) + doubling(cut, place) + message(fold.doubled(rank) ? n : 0);
    }
    case CollectiveAlgorithm::binomial: return messages((rank > 0 ? 1 : 0) + children(rank, p), n);
    default: break;
  }
  const Cut cut(balanced_counts(count, p), call.dtype);
  return all_but(cut, rank) + all_but(cut, (rank + 1) % p);
}

Traffic all_gather(const CollectiveCall& call, int rank) {
  const int p = call.ranks;
  const Cut cut(call.counts, call.dtype);
  if (call.algorithm == CollectiveAlgorithm::ring) return all_but(cut, (rank + 1) % p);
  if (call.algorithm == CollectiveAlgorithm::recursive_doubling) {
    const Fold fold(p);
    if (fold.idle(rank)) return message(cut[rank]);
    return doubling(cut.onto(fold), fold.place(rank)) + message(fold.doubled(rank) ? cut.all() : 0);
  }
  Traffic traffic;
  for (int have = 1; have < p; have *= 2) traffic += message(cut.turned(rank, std::min(have, p - have)));
  return traffic;
}

Traffic reduce_scatter(const CollectiveCall& call, int rank) {
  const Cut cut(call.counts, call.dtype);
  if (call.algorithm != CollectiveAlgorithm::recursive_halving) return all_but(cut, rank);
  const Fold fold(call.ranks);
  if (fold.idle(rank)) return message(cut.all());
  return halving(cut.onto(fold), fold.place(rank)) + message(fold.doubled(rank) ? cut[rank + 1] : 0);
}

Traffic broadcast(const CollectiveCall& call, int rank) {
  const int p = call.ranks, number = (rank - call.root + p) % p;
  if (call.algorithm == CollectiveAlgorithm::binomial)
    return messages(children(number, p), call.counts[0] * size_of(call.dtype));
  const Cut cut(balanced_counts(call.counts[0], p), call.dtype);
  Traffic traffic = all_but(cut, (number + 1) % p);
  // A rank received as many blocks as the lowest set bit of its number. It sends all of them on except its own.
  for (int bit = 1; number + bit < p && number % (2 * bit) == 0; bit *= 2)
    traffic += message(cut.range(number + bit, std::min(number + 2 * bit, p)));
  return traffic;
}

Traffic all_to_all(const CollectiveCall& call, int rank) {
  const int p = call.ranks;
  const auto bytes = [&](int from, int to) {
    return call.counts[static_cast<std::size_t>(from) * static_cast<std::size_t>(p) + static_cast<std::size_t>(to)] *
           size_of(call.dtype);
  };
  Traffic traffic;
  if (call.algorithm == CollectiveAlgorithm::pairwise) {
    for (int to = 0; to < p; ++to)
      if (to != rank) traffic += message(bytes(rank, to));
    return traffic;
  }
  // The round of `bit` moves the blocks whose distance has this bit set. They have already moved by the lower bits of
  // their distance.
  for (int bit = 1; bit < p; bit *= 2) {
    Index sum = 0;
    for (int far = bit; far < p; ++far) {
      const int from = (rank - far % bit + p) % p;
      if (far / bit % 2 == 1) sum += bytes(from, (from + far) % p);
    }
    traffic += message(sum);
  }
  return traffic;
}

void check(const CollectiveCall& call, int rank) {
  check_algorithm(call.verb, call.algorithm);
  const auto verb = name(call.verb);
  if (rank < 0 || rank >= call.ranks) fail("{} over {} ranks has no rank {}", verb, call.ranks, rank);
  if (call.root < 0 || call.root >= call.ranks) fail("{} over {} ranks has no root {}", verb, call.ranks, call.root);
  const auto p = static_cast<std::size_t>(call.ranks);
  const bool whole = call.verb == Verb::all_reduce || call.verb == Verb::broadcast;
  const std::size_t needed = whole ? 1 : call.verb == Verb::all_to_all ? p * p : p;
  if (call.counts.size() != needed)
    fail("{} over {} ranks needs {} counts, not {}", verb, p, needed, call.counts.size());
  for (const Index count : call.counts)
    if (count < 0) fail("{} over {} ranks cannot move {} elements", verb, p, count);
}

}  // namespace

Traffic collective_traffic(const CollectiveCall& call, int rank) {
  check(call, rank);
  switch (call.verb) {
    case Verb::all_reduce: return all_reduce(call, rank);
    case Verb::all_gather: return all_gather(call, rank);
    case Verb::reduce_scatter: return reduce_scatter(call, rank);
    case Verb::broadcast: return broadcast(call, rank);
    case Verb::all_to_all: return all_to_all(call, rank);
    case Verb::none:
    case Verb::exchange: break;
  }
  broken("not a collective");
}

}  // namespace partita
