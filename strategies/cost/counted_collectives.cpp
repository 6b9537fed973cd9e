// The time of a collective from what its ranks send:
//
//     a round    = the slowest of its levels: the rank's messages on its own link to that level, and those of all ranks
//                  of its unit on the links that they share
//     a phase    = the slowest rank's rounds, one after the other. A rank waits for its own partners, but not for those
//                  for whom these have waited, so this is too low where delays are handed on.
//     a way      = its phases, one after the other; by levels there is one for each level and direction
#include "strategies/cost/counted_collectives.hpp"

#include "strategies/cost/collective_rounds.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

namespace partita {

namespace {

/// Where each rank sends to all others in turn, at most so many distances are counted. Each stands for several if there
/// are more ranks.
constexpr int most_distances = 32;

constexpr int last_phase = std::numeric_limits<int>::max();

using Sequence = CountedCollectives::Sequence;

/// Adds a round to a sequence. Rounds alike count as one with more messages.
void append(Sequence& sequence, const std::vector<LinkUse>& round) {
  // Over one level, rounds of different sizes add up if their bytes are in proportion. Over several, the level that is
  // the slowest may be another one, so they must be equal.
  double times = 0, of_round = round.front().rounds;
  for (const LinkUse& use : round) of_round = std::max(of_round, use.rounds);
  const auto alike = [&](const LinkUse& a, const LinkUse& b) {
    if (a.link != b.link || a.follows != b.follows) return false;
    if (round.size() == 1) return a.bytes * b.of_unit == b.bytes * a.of_unit;
    return a.bytes * of_round == b.bytes * times && a.of_unit * of_round == b.of_unit * times;
  };
  for (auto begin = sequence.begin(); begin != sequence.end();) {
    const auto end =
        std::find_if(begin + 1, sequence.end(), [](const LinkUse& use) { return use.follows != Follows::at_once; });
    times = 0;
    for (auto use = begin; use != end; ++use) times = std::max(times, use->rounds);
    if (std::equal(begin, end, round.begin(), round.end(), alike)) {
      for (const LinkUse& use : round) {
        begin->rounds += use.rounds;
        begin->bytes += use.bytes;
        (begin++)->of_unit += use.of_unit;
      }
      return;
    }
    begin = end;
  }
  sequence.insert(sequence.end(), round.begin(), round.end());
}

/// True if a rank that does `a` is never slower than one that does `b`.
bool within(const Sequence& a, const Sequence& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const LinkUse& x, const LinkUse& y) {
    return x.link == y.link && x.follows == y.follows && x.rounds <= y.rounds && x.bytes <= y.bytes &&
           x.of_unit <= y.of_unit;
  });
}

/// Adds what a rank does to what others do, unless one of them is never faster.
void add_slower(std::vector<Sequence>& all, Sequence sequence) {
  const auto of = [](const Sequence& a) { return [&a](const Sequence& b) { return within(a, b); }; };
  if (sequence.empty() || std::any_of(all.begin(), all.end(), of(sequence))) return;
  std::erase_if(all, [&](const Sequence& other) { return within(other, sequence); });
  all.push_back(std::move(sequence));
}

}  // namespace

CountedCollectives::CountedCollectives(const Machine& machine, const Grid& grid, AxisSet axes, Verb verb)
    : verb_(verb) {
  for (const Level& level : machine.levels) {
    Level& mine = machine_.levels.emplace_back();
    mine.ranks = level.ranks;
    mine.pairs = level.pairs;
  }
  for (int rank = 0; rank < grid.size(); ++rank) {
    if (representative_rank(grid, rank, axes) != rank) continue;
    auto& ranks = collectives_.emplace_back(grid.group(rank, axes));
    for (int& each : ranks) number_[each += grid.first_rank()] = collectives_.size() - 1;
  }
}

std::shared_ptr<CountedCollectives> CountedCollectives::find(const Machine& machine, const Grid& grid, AxisSet axes,
                                                             Verb verb) {
  using Key = std::tuple<std::vector<int>, std::vector<std::vector<int>>, AxisSet, Verb>;
  constexpr std::size_t most_ranks_kept = 16384;  // of all of them: memory grows with their ranks
  thread_local std::map<Key, std::shared_ptr<CountedCollectives>> known;
  thread_local std::size_t ranks_kept = 0;
  std::vector<int> sizes{grid.first_rank()};
  for (int axis = 0; axis < grid.axes(); ++axis) sizes.push_back(grid.extent(axis));
  for (const Level& level : machine.levels) sizes.push_back(-static_cast<int>(level.ranks.value));
  Key key{std::move(sizes), machine.levels.front().pairs.links(), axes, verb};
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  if (ranks_kept > most_ranks_kept) {
    known.clear();
    ranks_kept = 0;
  }
  ranks_kept += static_cast<std::size_t>(grid.size());
  return known[std::move(key)] = std::make_shared<CountedCollectives>(machine, grid, axes, verb);
}

/// Returns the number of a rank's unit of a level; level -1 is the rank alone.
int CountedCollectives::unit(int level, int rank) const {
  return level < 0 ? rank : rank / static_cast<int>(machine_.levels[level].ranks.value);
}

Route CountedCollectives::route(int rank) const {
  const std::vector<int>& ranks = ranks_with(rank);
  const int top = machine_.level_of(ranks.front(), ranks.back());
  int inside = 0, most = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    inside = i > 0 && unit(top - 1, ranks[i]) == unit(top - 1, ranks[i - 1]) ? inside + 1 : 1;
    most = std::max(most, inside);
  }
  return {verb_, top, static_cast<int>(ranks.size()), most};
}

/// Gives each round its place: a rank's rounds follow each other, and a message is in the same place at both ends.
void CountedCollectives::align(Rounds& all) {
  std::vector<std::map<std::pair<int, int>, std::vector<Timed*>>> received(all.size());  // by phase and sender
  for (std::size_t me = 0; me < all.size(); ++me)
    for (Timed& each : all[me])
      for (const SizedMessage& message : each.round.received)
        received[me][{each.round.phase, message.peer}].push_back(&each);
  for (bool moved = true; std::exchange(moved, false);) {
    const auto at_least = [&](Timed& each, int place) {
      if (each.place < place) moved = true;
      each.place = std::max(each.place, place);
    };
    for (std::size_t me = 0; me < all.size(); ++me) {
      std::map<std::pair<int, int>, std::size_t> sent;  // so far, by phase and receiver
      for (std::size_t i = 0; i < all[me].size(); ++i) {
        Timed& mine = all[me][i];
        const int phase = mine.round.phase;
        if (i > 0 && all[me][i - 1].round.phase == phase) at_least(mine, all[me][i - 1].place + 1);
        for (const SizedMessage& message : mine.round.sent) {
          Timed& other = *received[message.peer].at({phase, static_cast<int>(me)})[sent[{phase, message.peer}]++];
          at_least(other, mine.place);
          at_least(mine, other.place);
        }
      }
    }
  }
}

/// Returns which ranks share the units of each level. Collectives that are alike in this have the same rounds.
std::vector<int> CountedCollectives::shape(const std::vector<int>& ranks) const {
  std::vector<int> units;  // by level and rank, numbered from the first one's
  for (int level = 0; level < std::ssize(machine_.levels) && machine_.levels[level].ranks.value > 0; ++level)
    for (const int rank : ranks) units.push_back(unit(level, rank) - unit(level, ranks.front()));
  return units;
}

const CountedCollectives::Rounds& CountedCollectives::rounds(const std::vector<int>& ranks,
                                                             const CollectiveOption& way) {
  const bool flat = way.levels == LevelUse::flat;  // takes no notice of units
  const auto [known, added] =
      rounds_.try_emplace({{way.algorithm, way.levels}, flat ? std::vector<int>() : shape(ranks)}, ranks.size());
  Rounds& all = known->second;
  if (!added) return all;
  CollectiveRounds rounds(verb_, way, machine_, ranks, 1, most_distances);
  const auto to_indices = [&](std::vector<SizedMessage>& messages) {
    for (auto& each : messages)
      each.peer = static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), each.peer) - ranks.begin());
  };
  for (std::size_t me = 0; me < ranks.size(); ++me)
    for (CollectiveRound& round : rounds.of(static_cast<int>(me))) {
      to_indices(round.sent);
      to_indices(round.received);
      all[me].push_back({std::move(round), 0});
    }
  align(all);
  return all;
}

/// Returns what passes the links in each place when all collectives run in this way.
const CountedCollectives::Traffic& CountedCollectives::traffic(const CollectiveOption& way) {
  const auto [known, added] = traffic_.try_emplace({way.algorithm, way.levels});
  if (!added) return known->second;
  for (const auto& ranks : collectives_) {
    const Rounds& all = rounds(ranks, way);
    for (std::size_t me = 0; me < all.size(); ++me)
      for (const auto& [round, place] : all[me]) {
        LinkBytes& links = known->second[{round.phase, place}];
        const auto add = [&](const std::vector<SizedMessage>& messages, Messages InOut::*direction) {
          for (const SizedMessage& message : messages) {
            const int farthest = machine_.level_of(ranks[me], ranks[message.peer]);
            (links.of_rank.*direction).push_back({farthest, ranks[me], message.bytes, 1});
            for (int level = farthest; level > 0; --level)
              (links.of_unit.*direction).push_back({level, unit(level - 1, ranks[me]), message.bytes, 1});
          }
        };
        add(round.sent, &InOut::sent);
        add(round.received, &InOut::received);
      }
  }
  for (auto& [place, links] : known->second)
    for (InOut* each : {&links.of_rank, &links.of_unit}) {
      join(each->sent);
      join(each->received);
    }
  return known->second;
}

/// Sorts messages, and counts those of one size over the same links together.
void CountedCollectives::join(Messages& messages) {
  std::sort(messages.begin(), messages.end());
  auto last = messages.begin();
  for (const Sizes& each : messages) {
    if (&each == &messages.front()) continue;
    if (last->level == each.level && last->end == each.end && last->bytes == each.bytes)
      last->count += each.count;
    else
      *++last = each;
  }
  if (!messages.empty()) messages.erase(last + 1, messages.end());
  messages.shrink_to_fit();
}

/// Returns the bytes that links carry until one of their messages has passed, if all share them fairly.
double CountedCollectives::shared(const Messages& messages, int level, int end, double bytes) {
  double all = 0;
  for (auto each = std::lower_bound(messages.begin(), messages.end(), Sizes{level, end, 0, 0});
       each != messages.end() && each->level == level && each->end == end; ++each)
    all += each->count * std::min(each->bytes, bytes);
  return all;
}

/// Returns what a rank waits for in a round. A message is as slow as the slower one of its two ends.
std::vector<LinkUse> CountedCollectives::uses(const CollectiveRound& round, const LinkBytes& links,
                                              const std::vector<int>& ranks, std::size_t me, int width,
                                              LinkTables& tables) const {
  struct OfLevel {
    double of_rank = 0, of_unit = 0;
    bool messages = false;
  };
  std::map<int, OfLevel> levels;
  const auto add = [&](const std::vector<SizedMessage>& messages, Messages InOut::*near, Messages InOut::*far) {
    for (const SizedMessage& message : messages) {
      const int rank = ranks[me], peer = ranks[message.peer], farthest = machine_.level_of(rank, peer);
      levels[farthest].messages = true;
      for (const auto& [end, direction] : {std::pair(rank, near), std::pair(peer, far)}) {
        OfLevel& here = levels[farthest];
        here.of_rank = std::max(here.of_rank, shared(links.of_rank.*direction, farthest, end, message.bytes));
        for (int level = farthest; level > 0; --level) {
          OfLevel& passed = levels[level];
          const double bytes = shared(links.of_unit.*direction, level, unit(level - 1, end), message.bytes);
          passed.of_unit = std::max(passed.of_unit, bytes);
        }
      }
    }
  };
  add(round.sent, &InOut::sent, &InOut::received);
  add(round.received, &InOut::received, &InOut::sent);
  std::vector<LinkUse> uses;
  for (const auto& [level, of] : levels)
    uses.push_back({tables.number({level, 1, false, level == 0 ? width : 1}), of.messages ? round.times : 0,
                    of.of_rank * round.times, of.of_unit * round.times,
                    uses.empty() ? Follows::after : Follows::at_once});
  return uses;
}

/// Returns for each rank of a collective the links that those of its innermost unit can use at once.
std::vector<int> CountedCollectives::widths(const std::vector<int>& ranks) const {
  const PairLinks& pairs = machine_.levels.front().pairs;
  std::vector<int> all(ranks.size(), 1);
  for (std::size_t i = 0; !pairs.empty() && i < ranks.size(); ++i) {
    const bool same = i > 0 && ranks[i] / pairs.ranks() == ranks[i - 1] / pairs.ranks();
    const auto rest = std::span(ranks).subspan(i, std::min(ranks.size() - i, static_cast<std::size_t>(pairs.ranks())));
    all[i] = same ? all[i - 1] : pairs.width(pairs.places(rest, ranks[i]));
  }
  return all;
}

/// Returns what ranks send to the switches of the outermost level and get back, each its share of the vector. Units
/// have as many shares as the one with most ranks, so that a rank of a smaller one may have several.
std::vector<Sequence> CountedCollectives::switches(const std::vector<int>& ranks, LinkTables& tables) {
  const Route route = this->route(ranks.front());
  const std::map<int, int>& leaving = this->leaving(route.level - 1);
  const std::map<int, int> inside = ranks_by_unit(ranks, route.level - 1);
  std::vector<Sequence> all;
  for (const auto& [unit, own] : inside) {
    const auto found = leaving.find(unit);
    const double sharing = found == leaving.end() ? 1 : found->second;
    const int shares = (route.inside + own - 1) / own, link = tables.number({route.level, sharing, true});
    add_slower(all, {{link, 2, static_cast<double>(shares) / route.inside}});
  }
  return all;
}

/// Returns how many ranks of a collective each unit of a level holds.
std::map<int, int> CountedCollectives::ranks_by_unit(const std::vector<int>& ranks, int level) const {
  std::map<int, int> all;
  for (const int rank : ranks) ++all[unit(level, rank)];
  return all;
}

/// Returns, by unit of a level, how many ranks it holds of collectives that leave it.
const std::map<int, int>& CountedCollectives::leaving(int level) {
  const auto [known, added] = leaving_.try_emplace(level);
  for (const auto& ranks : collectives_)
    for (const auto& [unit, inside] : added ? ranks_by_unit(ranks, level) : std::map<int, int>())
      if (inside < std::ssize(ranks)) known->second[unit] += inside;
  return known->second;
}

void CountedCollectives::add_way(const std::vector<int>& ranks, const std::vector<int>& widths,
                                 const CollectiveOption& way, LinkTables& tables) {
  const Traffic& traffic = this->traffic(way);
  const Rounds& all = rounds(ranks, way);
  std::map<int, std::vector<Sequence>> phases;
  CollectiveOption option = way;
  for (std::size_t me = 0; me < all.size(); ++me) {
    std::map<int, Sequence> mine;
    double combined = 0;
    for (const auto& [round, place] : all[me]) {
      append(mine[round.phase], uses(round, traffic.at({round.phase, place}), ranks, me, widths[me], tables));
      combined += round.combined * round.times;
    }
    option.combined = std::max(option.combined, combined);
    for (auto& [phase, sequence] : mine) add_slower(phases[phase], std::move(sequence));
  }
  if (way.levels == LevelUse::in_network) phases[last_phase] = switches(ranks, tables);
  option.first = static_cast<int>(tables.uses.size());
  for (auto& [phase, sequences] : phases)
    for (Sequence& sequence : sequences) {
      if (sequence.empty()) continue;
      sequence.front().follows = &sequence == &sequences.front() ? Follows::all_ranks : Follows::other_rank;
      tables.uses.insert(tables.uses.end(), sequence.begin(), sequence.end());
    }
  option.end = static_cast<int>(tables.uses.size());
  tables.options.push_back(option);
}

void CountedCollectives::add_options(int rank, double bytes, LinkTables& tables) {
  const auto [known, added] = known_.try_emplace(number_.at(rank));
  LinkTables& of_one_byte = known->second;
  if (added) {
    const std::vector<int>& ranks = ranks_with(rank);
    const Route route = this->route(rank);
    const std::vector<int> widths = this->widths(ranks);
    each_way(verb_, route.ranks, route.level, route.inside > 1, [&](CollectiveAlgorithm algorithm, LevelUse levels) {
      add_way(ranks, widths, {algorithm, levels}, of_one_byte);
    });
  }
  for (CollectiveOption option : of_one_byte.options) {
    const auto first = of_one_byte.uses.begin() + option.first, end = of_one_byte.uses.begin() + option.end;
    option.first = static_cast<int>(tables.uses.size());
    for (auto use = first; use != end; ++use)
      tables.uses.push_back({tables.number(of_one_byte.links[use->link]), use->rounds, use->bytes * bytes,
                             use->of_unit * bytes, use->follows});
    option.end = static_cast<int>(tables.uses.size());
    option.combined *= bytes;
    tables.options.push_back(option);
  }
}

}  // namespace partita
