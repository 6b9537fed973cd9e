// Collectives as messages between ranks: everything that is sent arrives, nobody waits forever, and as many bytes leave
// a rank as the closed forms of the algorithms say.
#include "strategies/cost/collective_rounds.hpp"
#include "strategies/cost/collective_cost.hpp"

#include "test/strategies/cost/priced.hpp"

#include <algorithm>
#include <map>
#include <queue>
#include <string>

namespace partita::test::collective_rounds_test {
namespace {

constexpr double bytes = 840;

constexpr std::array verbs{Verb::all_reduce, Verb::all_gather, Verb::reduce_scatter, Verb::broadcast, Verb::all_to_all};

using Rounds = std::vector<std::vector<CollectiveRound>>;  // by rank of the collective

Rounds rounds_of(Verb verb, const CollectiveOption& option, const Machine& machine, const std::vector<int>& ranks) {
  Rounds all;
  CollectiveRounds of_ranks(verb, option, machine, ranks, bytes);
  for (int me = 0; me < static_cast<int>(ranks.size()); ++me) {
    auto& rounds = all.emplace_back();
    for (const auto& round : of_ranks.of(me)) rounds.insert(rounds.end(), static_cast<std::size_t>(round.times), round);
  }
  return all;
}

/// Runs the rounds: a rank posts all messages of a round, and goes on when it has received its own. Returns "" or what
/// went wrong.
std::string run(const Rounds& all, const std::vector<int>& ranks) {
  std::map<std::pair<int, int>, std::queue<double>> under_way;  // by sender and receiver
  std::vector<std::size_t> at(all.size(), 0), posted(all.size(), 0);
  for (bool moved = true; std::exchange(moved, false);)
    for (std::size_t me = 0; me < all.size(); ++me) {
      if (at[me] == all[me].size()) continue;
      const CollectiveRound& round = all[me][at[me]];
      if (posted[me] == at[me]) {
        for (const auto& message : round.sent) under_way[{ranks[me], message.peer}].push(message.bytes);
        ++posted[me];
        moved = true;
      }
      const auto here = [&](const SizedMessage& message) { return !under_way[{message.peer, ranks[me]}].empty(); };
      if (!std::all_of(round.received.begin(), round.received.end(), here)) continue;
      for (const auto& message : round.received) {
        auto& queue = under_way[{message.peer, ranks[me]}];
        if (std::abs(queue.front() - message.bytes) > 1e-9 * bytes)
          return fmt::format("{} sends {} bytes, {} expects {}", message.peer, queue.front(), ranks[me], message.bytes);
        queue.pop();
      }
      ++at[me];
      moved = true;
    }
  for (std::size_t me = 0; me < all.size(); ++me)
    if (at[me] != all[me].size()) return fmt::format("rank {} waits forever in round {}", ranks[me], at[me]);
  for (const auto& [ends, queue] : under_way)
    if (!queue.empty()) return fmt::format("rank {} does not receive what {} sends", ends.second, ends.first);
  return "";
}

double sent(const std::vector<CollectiveRound>& rounds) {
  double sum = 0;
  for (const auto& round : rounds)
    for (const auto& message : round.sent) sum += message.bytes;
  return sum;
}

/// Calls visit(option) for the ways to run a collective on a machine with levels.
template <class Visit>
void each_option(Verb verb, Visit&& visit) {
  for (const CollectiveAlgorithm algorithm : algorithms(verb)) visit(CollectiveOption{algorithm, LevelUse::flat});
  using enum CollectiveAlgorithm;
  const bool rings = verb != Verb::broadcast && verb != Verb::all_to_all;
  if (rings) visit(CollectiveOption{ring, LevelUse::all_links});
  if (rings) visit(CollectiveOption{ring, LevelUse::by_levels});
  if (verb == Verb::all_reduce) visit(CollectiveOption{rabenseifner, LevelUse::by_levels});
  if (verb == Verb::all_reduce) visit(CollectiveOption{pairwise, LevelUse::one_shot});
  if (verb == Verb::all_gather) visit(CollectiveOption{recursive_doubling, LevelUse::by_levels});
  if (verb == Verb::reduce_scatter) visit(CollectiveOption{recursive_halving, LevelUse::by_levels});
  if (verb == Verb::broadcast) visit(CollectiveOption{scatter_all_gather, LevelUse::by_levels});
  if (verb == Verb::all_to_all) visit(CollectiveOption{pairwise, LevelUse::by_levels});
  if (verb == Verb::all_to_all) visit(CollectiveOption{bruck, LevelUse::by_levels});
}

std::vector<int> every(int step, int count, int first = 0) {
  std::vector<int> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(first + i * step);
  return ranks;
}

TEST(CollectiveRounds, EveryMessageArrivesAndNobodyWaitsForever) {
  std::vector<std::vector<int>> groups{{3}, every(3, 5), every(4, 8), every(2, 9, 1), {0, 1, 2, 5, 11, 12, 23}};
  for (int size = 2; size < 18; ++size) groups.push_back(every(1, size));
  for (const Machine& machine : {clustered_machine(4, 2), clustered_machine(3, 1), machine_of_racks(2, 3, 1)})
    for (const auto& ranks : groups)
      for (const Verb verb : verbs)
        each_option(verb, [&](const CollectiveOption& option) {
          const bool levels = machine.level_of(ranks.front(), ranks.back()) > 0;
          if (!levels && option.levels != LevelUse::flat && option.levels != LevelUse::one_shot) return;
          EXPECT_EQ(run(rounds_of(verb, option, machine, ranks), ranks), "")
              << name(verb) << " by " << name(option) << " among " << fmt::format("{}", fmt::join(ranks, " "));
        });
}

// Along the longest path of a power of two, which no fold disturbs, rank 0 sends what Thakur et al. 2005 count. In a
// tree it is the root, which receives what it does not send.
TEST(CollectiveRounds, SendTheBytesOfTheirClosedForms) {
  const Machine machine = clustered_machine(4, 2);
  for (const int size : {2, 8, 16})
    for (const Verb verb : verbs)
      for (const CollectiveAlgorithm algorithm : algorithms(verb)) {
        const auto rounds = rounds_of(verb, {algorithm, LevelUse::flat}, machine, every(1, size))[0];
        const double closed = collective_cost(verb, algorithm, size, bytes).bytes;
        const bool up_and_down = verb == Verb::all_reduce && algorithm == CollectiveAlgorithm::binomial;
        EXPECT_NEAR(sent(rounds), up_and_down ? closed / 2 : closed, 1e-9 * bytes)
            << name(verb) << " by " << name(algorithm) << " among " << size;
      }
}

// 2 (p-1)/p n in all: of this, the last of four ranks of each node and ring passes the border, where each rank has as
// large a share.
TEST(CollectiveRounds, RingsLeaveAUnitByAllItsRanks) {
  const Machine machine = clustered_machine(4, 4);
  const auto ranks = every(1, 8);
  for (const auto& rounds :
       rounds_of(Verb::all_reduce, {CollectiveAlgorithm::ring, LevelUse::all_links}, machine, ranks)) {
    EXPECT_NEAR(sent(rounds), 2 * 7. / 8 * bytes, 1e-9 * bytes);
    ASSERT_FALSE(rounds.empty());
    EXPECT_EQ(rounds[0].sent.size(), 2U) << "one neighbor in the node, one outside";
  }
}

// The switches add what is left.
TEST(CollectiveRounds, OfSumsInTheNetworkThereIsWhatHappensInsideNodes) {
  const Machine machine = clustered_machine(2, 1);
  for (const auto& rounds :
       rounds_of(Verb::all_reduce, {CollectiveAlgorithm::ring, LevelUse::in_network}, machine, every(1, 4))) {
    ASSERT_EQ(rounds.size(), 2U) << "a reduce_scatter and an all_gather of two ranks";
    EXPECT_NEAR(sent(rounds), bytes, 1e-9 * bytes);
  }
}

}  // namespace
}  // namespace partita::test::collective_rounds_test
