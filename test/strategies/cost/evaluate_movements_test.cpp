// MachineRates: seconds of exchanges and collectives, worked out by hand. The machine has round numbers: a node level
// of 1 us and 1 GB/s, and a network of 10 us and 0.1 GB/s. A byte that is added costs 3 ns: two are read and one is
// written.
#include "strategies/cost/evaluate_terms.hpp"

#include "test/strategies/cost/movements.hpp"

#include <string>

namespace partita::test::evaluate_movements_test {

TEST(MachineRates, AnExchangeTakesItsLatenciesAndItsBytes) {
  struct Case {
    int level;
    double messages, turns, bytes, seconds;
  };
  for (const auto& [level, messages, turns, bytes, seconds] :
       {Case{node, 1, 1, 0, 1 * us}, Case{node, 1, 1, 1000, 2 * us}, Case{node, 3, 1, 5000, 6 * us},
        Case{node, 3, 2, 5000, 7 * us}, Case{node, 3, 8, 5000, 8 * us}, Case{network, 1, 1, 1000, 20 * us},
        Case{network, 2, 1, 700, 17 * us}}) {
    CostTerms terms;
    const Movement movement = exchange(terms, {level, 1}, messages, bytes);
    terms.options.back().turns = turns;
    const Machine machine = two_levels();
    expect_seconds(MachineRates(terms, machine).seconds(movement).all, seconds,
                   fmt::format("{} messages of {} bytes in {} turns at level {}", messages, bytes, turns, level));
  }
}

// So many ranks of a unit share its links, of which the network above it can keep 1 / fan_out busy at once.
TEST(MachineRates, RanksShareTheLinksOfTheirUnit) {
  struct Case {
    double links, sharing, fan_out, share;
  };
  for (const auto& [links, sharing, fan_out, share] :
       {Case{1, 1, 1, 1}, Case{1, 4, 1, 0.25}, Case{2, 4, 1, 0.5}, Case{4, 4, 1, 1}, Case{4, 1, 1, 1},
        Case{2, 3, 1, 2. / 3}, Case{1, 1.5, 1, 2. / 3}, Case{4, 1, 2, 1}, Case{4, 4, 2, 0.5}, Case{8, 8, 2, 0.5},
        Case{8, 3, 2, 1}, Case{2, 4, 3, 1. / 6}}) {
    CostTerms terms;
    const Movement movement = exchange(terms, {network, sharing}, 1, 1000);
    const Machine machine = two_levels(links, fan_out);
    const MachineRates rates(terms, machine);
    const std::string what = fmt::format("{} ranks on {} links, fan-out {}", sharing, links, fan_out);
    expect_seconds(rates.rate({0, 0, 0}).per_byte, 1e-8 / share, what);
    expect_seconds(rates.seconds(movement).all, 10 * us + 10 * us / share, what);
  }
}

TEST(MachineRates, MeasuredSecondsReplaceTheFormula) {
  Machine machine = two_levels();
  machine.levels[node].verbs[{Verb::exchange, 2}] = {{{100, 5 * us}, {1000, 50 * us}}, ""};
  machine.levels[node].verbs[{Verb::all_reduce, 3}] = {{{8, 70 * us}}, ""};
  machine.levels[network].verbs[{Verb::all_reduce, 8, 4}] = {{{8, 90 * us}}, ""};
  CostTerms terms;
  const auto expect = [&](const Movement& movement, double seconds, const std::string& what) {
    expect_seconds(MachineRates(terms, machine).seconds(movement).all, seconds, what);
  };
  expect(exchange(terms, {node, 1}, 1, 100), 5 * us, "one message");
  expect(exchange(terms, {node, 1}, 3, 300), 15 * us, "three messages of 100 bytes");
  expect(exchange(terms, {node, 1}, 1, 2000), 100 * us, "in proportion beyond the last point");
  expect(exchange(terms, {network, 1}, 1, 100), 11 * us, "another level is not measured");
  Movement sum = collective(terms, {Verb::all_reduce, node, 3, 1}, 1, 16, {{}});
  sum.messages = 2;
  expect(sum, 140 * us, "two calls of 8 bytes, whatever the algorithm");
  expect(collective(terms, {Verb::all_reduce, network, 8, 4}, 1, 8, {{}}), 90 * us, "four of eight ranks share a node");
  expect(collective(terms, {Verb::all_reduce, network, 8, 2}, 1, 8, {{CollectiveAlgorithm::ring, {1, 100, 0}}}),
         11 * us, "not measured with two a node");
}

// A message to a near and one to a far rank: each at its own level. A ring crosses both levels at once.
TEST(MachineRates, LinksOfSeveralLevelsAreUsedInTurnOrTogether) {
  const Machine machine = two_levels();
  CostTerms terms;
  terms.links = {{node, 1}, {network, 1}};
  terms.uses = {{0, 2, 5000}, {1, 1, 300}, {0, 2, 5000}, {1, 1, 300, 0, Follows::at_once}};
  terms.routes = {{Verb::exchange, network, 2, 1}, {Verb::all_gather, network, 8, 4}};
  CollectiveOption in_turn, at_once;
  in_turn.end = at_once.first = 2;
  at_once.end = 4;
  terms.options = {in_turn, at_once};
  const MachineRates rates(terms, machine);
  expect_seconds(rates.seconds(Movement{0, 3, 5300, 0, 1}).all, 10 * us + 3 * us,
                 "messages are under way together, and both levels at once");
  expect_seconds(rates.seconds(Movement{1, 1, 5300, 0, 1}).all, 20 * us, "one after the other");
  expect_seconds(rates.seconds(Movement{1, 1, 5300, 1, 2}).all, 13 * us, "the slowest");
}

// A rank waits 2 us and then 11 us, or 12 us at once with 5 us; another one meanwhile 20 us. Then all wait for each
// other before the last 11 us.
TEST(MachineRates, OfRanksThatDoDifferentThingsTheSlowestCounts) {
  const Machine machine = two_levels();
  CostTerms terms;
  terms.links = {{node, 1}, {network, 1}};
  using enum Follows;
  const LinkUse near{0, 1, 1000}, far{1, 1, 100};
  const auto then = [](LinkUse use, Follows follows) { return use.follows = follows, use; };
  terms.uses = {near, far, then({0, 2, 10000}, at_once), then({1, 1, 1000}, other_rank), then(far, all_ranks)};
  CollectiveOption option;
  const auto seconds = [&](int end) {
    option.end = end;
    return MachineRates(terms, machine).seconds(option);
  };
  expect_seconds(seconds(2), 2 * us + 11 * us, "one after the other");
  expect_seconds(seconds(3), 2 * us + 12 * us, "the slower one of two at once");
  expect_seconds(seconds(4), 20 * us, "another rank");
  expect_seconds(seconds(5), 31 * us, "all wait");
  const auto slowest = MachineRates(terms, machine).slowest_uses(option);
  EXPECT_EQ(slowest, (std::vector<LinkUse>{terms.uses[3], terms.uses[4]}));
}

// The ranks of a unit send 4000 bytes over two links of 0.1 GB/s, each of them no more than 1000.
TEST(MachineRates, RanksOfAUnitMaySendUnequallyMuch) {
  const Machine machine = two_levels(2);
  CostTerms terms;
  terms.links = {{network, 1}};
  terms.uses = {{0, 1, 1000, 4000}, {0, 1, 3000, 4000}};
  CollectiveOption option;
  option.end = 1;
  expect_seconds(MachineRates(terms, machine).seconds(option), 30 * us, "they wait for the unit's links");
  option.first = 1;
  option.end = 2;
  expect_seconds(MachineRates(terms, machine).seconds(option), 40 * us, "a rank waits for its own");
}

// Switches that add at 0.05 GB/s: less than a link of 0.1 GB/s brings.
TEST(MachineRates, OnlySwitchesThatCanAddDoSo) {
  Machine machine = two_levels();
  CostTerms terms;
  terms.links = {{network, 4, true}};
  terms.uses = {{0, 2, 1000}};
  terms.options.push_back({CollectiveAlgorithm::ring, LevelUse::in_network, 0, 1, 0});
  EXPECT_GT(MachineRates(terms, machine).seconds(terms.options[0]), 1e90) << "they cannot";
  machine.levels[network].reduction = {5e7, ""};
  expect_seconds(MachineRates(terms, machine).seconds(terms.options[0]), 40 * us);
  machine.levels[network].reduction = {1e9, ""};
  expect_seconds(MachineRates(terms, machine).seconds(terms.options[0]), 30 * us, "a link brings no more");
  machine.levels[network].links = {2, ""};
  expect_seconds(MachineRates(terms, machine).seconds(terms.options[0]), 40 * us, "four ranks share two links");
}

// A ring of 6 rounds that moves 1.5 n, recursive doubling of 2 rounds that moves 2 n and adds 2 n: with 1 us, 1 ns and
// 3 ns these take 6 us + 1.5 n and 2 us + 8 n, the same for 615.38 bytes.
TEST(MachineRates, ACollectiveTakesItsCheapestAlgorithm) {
  const Machine machine = two_levels();
  struct Case {
    double bytes;
    CollectiveAlgorithm algorithm;
    double seconds;
  };
  for (const auto& [bytes, algorithm, seconds] :
       {Case{0, CollectiveAlgorithm::recursive_doubling, 2 * us},
        Case{600, CollectiveAlgorithm::recursive_doubling, 6.8 * us}, Case{620, CollectiveAlgorithm::ring, 6.93 * us},
        Case{4000, CollectiveAlgorithm::ring, 12 * us}}) {
    const double n = bytes;
    CostTerms terms;
    collective(terms, {Verb::all_reduce, node, 4, 1}, 1, n, {{CollectiveAlgorithm::binomial, {99, 0, 0}}});
    const Movement once = collective(terms, {Verb::all_reduce, node, 4, 1}, 1, n,
                                     {{CollectiveAlgorithm::recursive_doubling, {2, 2 * n, 2 * n}},
                                      {CollectiveAlgorithm::ring, {6, 1.5 * n, 0}},
                                      {CollectiveAlgorithm::rabenseifner, {7, 2 * n, n}},
                                      {CollectiveAlgorithm::binomial, {8, 4 * n, 2 * n}}});
    Movement thrice = once;
    thrice.messages = 3;
    const MachineRates rates(terms, machine);
    EXPECT_EQ(rates.cheapest(once).option->algorithm, algorithm) << n << " bytes";
    expect_seconds(rates.seconds(once).all, seconds, fmt::format("{} bytes", n));
    expect_seconds(rates.seconds(thrice).all, 3 * seconds, "three calls");
  }
}

TEST(MachineRates, OfAlgorithmsThatCostTheSameTheFirstIsTaken) {
  const Machine machine = two_levels();
  CostTerms terms;
  const Movement movement =
      collective(terms, {Verb::all_to_all, node, 2, 1}, 1, 10,
                 {{CollectiveAlgorithm::pairwise, {1, 10, 0}}, {CollectiveAlgorithm::bruck, {1, 10, 0}}});
  const MachineRates rates(terms, machine);
  EXPECT_EQ(rates.cheapest(movement).option->algorithm, CollectiveAlgorithm::pairwise);
}

// A slower link favors few bytes: 10 us and 10 ns a byte, shared by four ranks on one link.
TEST(MachineRates, TheCheapestAlgorithmDependsOnTheLink) {
  const Machine machine = two_levels(1);
  const std::vector<Way> ways{{CollectiveAlgorithm::ring, {3, 750, 0}},
                              {CollectiveAlgorithm::recursive_doubling, {2, 1200, 0}},
                              {CollectiveAlgorithm::bruck, {2, 1300, 0}}};
  CostTerms terms;
  const Movement alone = collective(terms, {Verb::all_gather, network, 4, 1}, 1, 1000, ways);
  const Movement shared = collective(terms, {Verb::all_gather, network, 4, 1}, 4, 1000, ways);
  const MachineRates rates(terms, machine);
  expect_seconds(rates.seconds(alone).all, 20 * us + 12 * us);
  expect_seconds(rates.seconds(shared).all, 30 * us + 30 * us);
}

}  // namespace partita::test::evaluate_movements_test
