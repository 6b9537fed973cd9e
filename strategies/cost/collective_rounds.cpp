#include "strategies/cost/collective_rounds.hpp"

#include "strategies/cost/flat_rounds.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace partita {

namespace {

/// The units of a machine to which the ranks of a collective belong.
class UnitsOfRanks {
 public:
  UnitsOfRanks(const Machine& machine, std::span<const int> ranks) : machine_(machine), ranks_(ranks) {
    const int top = machine.level_of(ranks.front(), ranks.back());
    for (int level = 0, inside = 1; level <= top; ++level) {
      const int most = most_in_unit(level);
      if (most > inside) levels_.push_back({level, inside});
      inside = most;
    }
  }

  /// A level at which the collective has several units, and the most of its ranks that one of them holds.
  struct At {
    int level = 0, inside = 1;
  };
  /// These levels, from the inside out.
  const std::vector<At>& levels() const { return levels_; }

  /// Returns the ranks of the unit of a level in which a rank lies; level -1 is the rank alone.
  std::span<const int> of(int level, int rank) const {
    if (level >= 0 && machine_.levels[level].ranks.value == 0) return ranks_;
    const int unit = level < 0 ? 1 : static_cast<int>(machine_.levels[level].ranks.value);
    const int first = rank / unit * unit;
    const auto begin = std::lower_bound(ranks_.begin(), ranks_.end(), first);
    return {begin, std::lower_bound(begin, ranks_.end(), first + unit)};
  }
  /// Returns the fewest ranks of the collective in a unit below the outermost level that it crosses.
  int fewest() const {
    std::size_t fewest = ranks_.size();
    for (const auto& unit : parts(levels_.back().level, ranks_)) fewest = std::min(fewest, unit.size());
    return static_cast<int>(fewest);
  }
  /// Returns the units of the level below into which a unit of a level divides.
  std::vector<std::span<const int>> parts(int level, std::span<const int> unit) const {
    std::vector<std::span<const int>> parts;
    for (std::size_t i = 0; i < unit.size(); i += parts.back().size()) parts.push_back(of(level - 1, unit[i]));
    return parts;
  }

 private:
  int most_in_unit(int level) const {
    std::size_t most = 0;
    for (std::size_t i = 0; i < ranks_.size();) {
      const std::size_t here = of(level, ranks_[i]).size();
      most = std::max(most, here);
      i += here;
    }
    return static_cast<int>(most);
  }

  const Machine& machine_;
  std::span<const int> ranks_;
  std::vector<At> levels_;
};

}  // namespace

/// Writes the rounds of ranks in a collective that uses the levels of a machine.
class CollectiveRounds::ByLevels {
 public:
  ByLevels(Verb verb, const CollectiveOption& way, const Machine& machine, std::span<const int> ranks, double bytes)
      : verb_(verb),
        algorithm_(way.algorithm),
        levels_(way.levels),
        units_(machine, ranks),
        ranks_(ranks),
        bytes_(bytes) {}

  std::vector<CollectiveRound> of(int me) {
    me_ = ranks_[me];
    phase_ = 0;
    rounds_.clear();
    switch (levels_) {
      case LevelUse::flat: break;
      case LevelUse::one_shot: return one_shot();
      case LevelUse::all_links: return all_links(me);
      case LevelUse::by_levels: return by_levels(false);
      case LevelUse::in_network: return by_levels(true);
    }
    broken("not by levels");
  }

 private:
  std::vector<CollectiveRound> one_shot() {
    CollectiveRound round;
    for (const int rank : ranks_)
      if (rank != me_) round.sent.push_back({rank, bytes_});
    round.received = round.sent;
    round.combined = bytes_ * static_cast<double>(round.sent.size());
    return {round};
  }

  /// `in_network`: the switches do the part between the outermost units.
  std::vector<CollectiveRound> by_levels(bool in_network) {
    const auto& levels = units_.levels();
    const auto inner = std::span(levels).first(levels.size() - 1);
    const bool ring = algorithm_ == CollectiveAlgorithm::ring;
    if (verb_ == Verb::all_gather || verb_ == Verb::broadcast) {
      for (auto at = levels.rbegin(); at != levels.rend(); ++at) add(*at, verb_, algorithm_);
      return std::move(rounds_);
    }
    const bool sums = verb_ == Verb::all_reduce;
    const auto scatter = ring ? CollectiveAlgorithm::ring : CollectiveAlgorithm::recursive_halving;
    for (const auto& at : inner) sums ? add(at, Verb::reduce_scatter, scatter) : add(at, verb_, algorithm_);
    if (!in_network) add(levels.back(), verb_, algorithm_);
    const auto gather = ring ? CollectiveAlgorithm::ring : CollectiveAlgorithm::recursive_doubling;
    for (auto at = inner.rbegin(); sums && at != inner.rend(); ++at) add(*at, Verb::all_gather, gather);
    return std::move(rounds_);
  }

  /// The order of the ranks in a ring, and the place of each in it.
  struct Ring {
    std::vector<int> order, place;
  };

  /// Rings that leave each unit by another of its ranks, with equal shares of the bytes. There are as many as the
  /// smallest unit has ranks: with more, one of them would carry two.
  std::vector<CollectiveRound> all_links(int me) {
    const auto size = static_cast<int>(ranks_.size());
    if (rings_.empty())
      for (int ring = 0, fewest = units_.fewest(); ring < fewest; ++ring) rings_.push_back(make_ring(ring));
    CollectiveRound round;
    const double block = bytes_ / static_cast<double>(rings_.size()) / size;
    for (const Ring& ring : rings_) {
      const int at = ring.place[me];
      add(round.sent, ring.order[(at + 1) % size], block);
      add(round.received, ring.order[(at + size - 1) % size], block);
    }
    round.times = size - 1;
    rounds_ = {round};
    if (verb_ != Verb::all_gather) rounds_.front().combined = block * static_cast<double>(rings_.size());
    if (verb_ == Verb::all_reduce) rounds_.push_back(round);
    return std::move(rounds_);
  }
  Ring make_ring(int number) const {
    Ring ring;
    append(units_.levels().back().level, ranks_, number, ring.order);
    ring.place.resize(ring.order.size());
    for (std::size_t at = 0; at < ring.order.size(); ++at)
      ring.place[std::lower_bound(ranks_.begin(), ranks_.end(), ring.order[at]) - ranks_.begin()] =
          static_cast<int>(at);
    return ring;
  }

  static void add(std::vector<SizedMessage>& messages, int peer, double bytes) {
    const auto found =
        std::find_if(messages.begin(), messages.end(), [&](const SizedMessage& each) { return each.peer == peer; });
    if (found == messages.end()) return messages.push_back({peer, bytes});
    found->bytes += bytes;
  }

  /// Adds a collective among the ranks at equal places in the units of a level. A rank of a smaller unit has several
  /// places, whose rounds run at the same time.
  void add(const UnitsOfRanks::At& at, Verb verb, CollectiveAlgorithm algorithm) {
    const auto own = units_.of(at.level - 1, me_);
    const auto first = static_cast<std::size_t>(std::find(own.begin(), own.end(), me_) - own.begin());
    const std::size_t before = rounds_.size();
    for (std::size_t place = first; place < static_cast<std::size_t>(at.inside); place += own.size()) {
      const std::vector<int>& peers = this->peers(at.level, place);
      const auto index = static_cast<int>(std::find(peers.begin(), peers.end(), me_) - peers.begin());
      std::vector<CollectiveRound> rounds;
      add_flat_rounds(verb, algorithm, peers, index, verb == Verb::all_to_all ? bytes_ : bytes_ / at.inside, rounds);
      rounds_.resize(std::max(rounds_.size(), before + rounds.size()));
      for (std::size_t i = 0; i < rounds.size(); ++i) {
        CollectiveRound& all = rounds_[before + i];
        for (const auto& each : rounds[i].sent) add(all.sent, each.peer, each.bytes);
        for (const auto& each : rounds[i].received) add(all.received, each.peer, each.bytes);
        all.combined += rounds[i].combined;
        all.times = rounds[i].times;
        all.phase = phase_;
      }
    }
    ++phase_;
  }

  /// Returns the ranks at a place in the units below the one of a level in which the rank lies.
  const std::vector<int>& peers(int level, std::size_t place) {
    const auto whole = units_.of(level, me_);
    auto& known = peers_[{level, whole.front(), place}];
    if (known.empty())
      for (const auto& unit : units_.parts(level, whole)) known.push_back(unit[place % unit.size()]);
    return known;
  }

  /// Appends the ranks of a unit in the order of a ring. The order of the units inside turns with the ring's number.
  void append(int level, std::span<const int> unit, int ring, std::vector<int>& order) const {
    if (unit.size() == 1) return order.push_back(unit[0]);
    const auto parts = units_.parts(level, unit);
    const bool top = unit.size() == ranks_.size();
    const auto below = static_cast<std::size_t>(ring) / parts[0].size();
    const std::size_t turn = top ? 0 : below % parts.size();
    for (std::size_t i = 0; i < parts.size(); ++i) append(level - 1, parts[(i + turn) % parts.size()], ring, order);
  }

  Verb verb_;
  CollectiveAlgorithm algorithm_;
  LevelUse levels_;
  UnitsOfRanks units_;
  std::span<const int> ranks_;
  double bytes_;
  std::vector<Ring> rings_;                                              // of all_links()
  std::map<std::tuple<int, int, std::size_t>, std::vector<int>> peers_;  // by level, first rank of its unit, and place
  // of the rank whose rounds are written
  int me_ = 0;  // rank of the world
  int phase_ = 0;
  std::vector<CollectiveRound> rounds_;
};

CollectiveRounds::CollectiveRounds(Verb verb, const CollectiveOption& way, const Machine& machine,
                                   std::span<const int> ranks, double bytes, int most_distances)
    : verb_(verb), algorithm_(way.algorithm), ranks_(ranks), bytes_(bytes), most_distances_(most_distances) {
  if (way.levels != LevelUse::flat && ranks.size() > 1)
    by_levels_ = std::make_unique<ByLevels>(verb, way, machine, ranks, bytes);
}
CollectiveRounds::~CollectiveRounds() = default;

std::vector<CollectiveRound> CollectiveRounds::of(int me) {
  if (by_levels_) return by_levels_->of(me);
  std::vector<CollectiveRound> rounds;
  add_flat_rounds(verb_, algorithm_, ranks_, me, bytes_, rounds, most_distances_);
  return rounds;
}

}  // namespace partita
