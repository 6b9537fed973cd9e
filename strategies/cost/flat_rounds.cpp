#include "strategies/cost/flat_rounds.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <bit>

namespace partita {

namespace {

/// Writes the rounds of one rank. Below, p is the number of ranks and n the bytes of the whole vector.
class FlatRounds {
 public:
  FlatRounds(std::span<const int> ranks, int me, double bytes, std::vector<CollectiveRound>& rounds, int most_distances)
      : ranks_(ranks),
        p_(static_cast<int>(ranks.size())),
        me_(me),
        n_(bytes),
        block_(bytes / p_),
        fold_(p_),
        most_distances_(most_distances),
        rounds_(rounds) {}

  void all_reduce(CollectiveAlgorithm algorithm) {
    switch (algorithm) {
      case CollectiveAlgorithm::recursive_doubling:
        return folded(n_, n_, [&] { each_pair(1, [&](int) { swap(n_, n_, n_); }); });
      case CollectiveAlgorithm::rabenseifner: return folded(n_, n_, [&] { halve_and_double(); });
      case CollectiveAlgorithm::binomial: return reduce(), broadcast();
      default: return ring(block_), ring(0);
    }
  }
  void all_gather(CollectiveAlgorithm algorithm) {
    if (algorithm == CollectiveAlgorithm::ring) return ring(0);
    if (algorithm == CollectiveAlgorithm::bruck) return gather_bruck();
    folded(block_, n_, [&] {
      each_pair(1, [&](int distance) { swap(block_ * ranks_of(mine(distance)), block_ * ranks_of(theirs(distance))); });
    });
  }
  void reduce_scatter(CollectiveAlgorithm algorithm) {
    if (algorithm == CollectiveAlgorithm::ring) return ring(block_);
    if (algorithm == CollectiveAlgorithm::pairwise) return direct(block_);
    folded(n_, block_, [&] {
      each_pair(-1, [&](int distance) {
        const double kept = block_ * ranks_of(mine(distance));
        swap(block_ * ranks_of(theirs(distance)), kept, kept);
      });
    });
  }
  void broadcast(CollectiveAlgorithm algorithm) {
    if (algorithm == CollectiveAlgorithm::binomial) return broadcast();
    scatter();
    ring(0);
  }
  void all_to_all(CollectiveAlgorithm algorithm) {
    if (algorithm == CollectiveAlgorithm::pairwise) return direct(0);
    for (int bit = 1; bit < p_; bit *= 2) {  // the blocks whose distance has this bit
      int blocks = 0;
      for (int distance = bit; distance < p_; ++distance) blocks += (distance & bit) != 0 ? 1 : 0;
      shift(bit, block_ * blocks, 0);
    }
  }

 private:
  /// A range of places of the fold.
  struct Places {
    int first = 0, count = 0;
  };

  int rank(int index) const { return ranks_[(index % p_ + p_) % p_]; }
  CollectiveRound& round() { return rounds_.emplace_back(); }

  /// Sends `bytes` to the rank `distance` above, and receives as much from the one below.
  void shift(int distance, double bytes, double combined) {
    CollectiveRound& round = this->round();
    round.sent.push_back({rank(me_ + distance), bytes});
    round.received.push_back({rank(me_ - distance), bytes});
    round.combined = combined;
  }
  void ring(double combined) {
    shift(1, block_, combined);
    rounds_.back().times = p_ - 1;
  }
  void direct(double combined) {
    const int step = (p_ - 2) / most_distances_ + 1;
    for (int k = 1; k < p_; k += step) {
      shift(std::min(k + step / 2, p_ - 1), block_, combined);
      rounds_.back().times = std::min(step, p_ - k);
    }
  }

  void send(int to, double bytes) { round().sent.push_back({rank(to), bytes}); }
  void receive(int from, double bytes, double combined = 0) {
    CollectiveRound& round = this->round();
    round.received.push_back({rank(from), bytes});
    round.combined = combined;
  }

  /// Runs `core` on the ranks that act for a place of the fold. The others hand in `in` bytes, which are combined if
  /// all have the whole vector, and get `out` back.
  template <class Core>
  void folded(double in, double out, Core&& core) {
    if (fold_.idle(me_)) {
      send(me_ - 1, in);
      return receive(me_ - 1, out);
    }
    if (fold_.doubled(me_)) receive(me_ + 1, in, in == n_ ? n_ : 0);
    core();
    if (fold_.doubled(me_)) send(me_ + 1, out);
  }
  /// Calls visit(distance) for the distances 1, 2, 4, ... in places of the fold, or downward.
  template <class Visit>
  void each_pair(int direction, Visit&& visit) {
    const int first = direction > 0 ? 1 : fold_.core / 2;
    for (int d = first; d > 0 && d<fold_.core; d = direction> 0 ? d * 2 : d / 2) {
      distance_ = d;
      visit(d);
    }
  }
  int place() const { return fold_.place(me_); }
  Places mine(int distance) const { return {place() & ~(distance - 1), distance}; }
  Places theirs(int distance) const { return {(place() ^ distance) & ~(distance - 1), distance}; }
  int ranks_of(const Places& places) const {
    return fold_.first(places.first + places.count) - fold_.first(places.first);
  }
  /// Exchanges with the rank that acts for the place at the distance of each_pair().
  void swap(double out, double in, double combined = 0) {
    const int peer = rank(fold_.first(place() ^ distance_));
    CollectiveRound& round = this->round();
    round.sent.push_back({peer, out});
    round.received.push_back({peer, in});
    round.combined = combined;
  }

  void halve_and_double() {
    const auto part = [&](int distance) { return n_ * distance / fold_.core; };
    each_pair(-1, [&](int distance) { swap(part(distance), part(distance), part(distance)); });
    each_pair(1, [&](int distance) { swap(part(distance), part(distance)); });
  }
  int half() const { return static_cast<int>(std::bit_ceil(static_cast<unsigned>(p_))) / 2; }
  void reduce() {
    for (int bit = half(); bit > 0; bit /= 2) {
      if (me_ >= bit && me_ < 2 * bit) send(me_ - bit, n_);
      if (me_ < bit && me_ + bit < p_) receive(me_ + bit, n_, n_);
    }
  }
  void broadcast() {
    for (int bit = 1; bit < p_; bit *= 2) {
      if (me_ < bit && me_ + bit < p_) send(me_ + bit, n_);
      if (me_ >= bit && me_ < 2 * bit) receive(me_ - bit, n_);
    }
  }
  void scatter() {
    for (int bit = half(); bit > 0; bit /= 2) {
      const auto blocks = [&](int first) { return block_ * (std::min(first + bit, p_) - first); };
      if (me_ % (2 * bit) == 0 && me_ + bit < p_) send(me_ + bit, blocks(me_ + bit));
      if (me_ % (2 * bit) == bit) receive(me_ - bit, blocks(me_));
    }
  }
  void gather_bruck() {
    for (int have = 1; have < p_; have *= 2) {
      const double bytes = block_ * std::min(have, p_ - have);
      CollectiveRound& round = this->round();
      round.sent.push_back({rank(me_ - have), bytes});
      round.received.push_back({rank(me_ + have), bytes});
    }
  }

  std::span<const int> ranks_;
  int p_, me_;
  double n_, block_;
  Fold fold_;
  int distance_ = 0;
  int most_distances_;
  std::vector<CollectiveRound>& rounds_;
};

}  // namespace

void add_flat_rounds(Verb verb, CollectiveAlgorithm algorithm, std::span<const int> ranks, int me, double bytes,
                     std::vector<CollectiveRound>& rounds, int most_distances) {
  if (ranks.size() == 1 || bytes == 0) return;
  check_algorithm(verb, algorithm);
  FlatRounds flat(ranks, me, bytes, rounds, most_distances);
  switch (verb) {
    case Verb::all_reduce: return flat.all_reduce(algorithm);
    case Verb::all_gather: return flat.all_gather(algorithm);
    case Verb::reduce_scatter: return flat.reduce_scatter(algorithm);
    case Verb::broadcast: return flat.broadcast(algorithm);
    case Verb::all_to_all: return flat.all_to_all(algorithm);
    case Verb::none:
    case Verb::exchange: break;
  }
  broken("not a collective");
}

}  // namespace partita
