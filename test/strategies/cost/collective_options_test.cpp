// The ways to run a collective over the levels of a machine. Known answers: 64 ranks on eight nodes of eight, each with
// eight links of 50 GB/s to the others, and 450 GB/s inside.
#include "strategies/cost/collective_options.hpp"
#include "strategies/cost/evaluate_terms.hpp"

#include "test/strategies/cost/priced.hpp"
#include "test/support/error_of.hpp"

#include <algorithm>
#include <string>

namespace partita::test::collective_options_test {
namespace {

constexpr double inside = 450e9, link = 50e9;  // bytes per second

Machine nodes_of_eight(double links = 8, double fan_out = 1) {
  Machine machine = clustered_machine(8, links);
  machine.memory_bandwidth.value = 1e30;  // adding takes no time
  machine.levels[0].bandwidth.value = inside;
  machine.levels[1].bandwidth.value = link;
  machine.levels[1].fan_out.value = fan_out;
  for (Level& level : machine.levels) level.latency.value = 1e-30;
  return machine;
}

/// 64 ranks that fill eight nodes, and eight ranks of eight nodes beside seven other groups.
const std::vector<Span> whole{{0, 8, 1, 1}, {1, 64, 8, 1}};
const std::vector<Span> one_per_node{{1, 8, 1, 8}};

/// Seconds of a way to run a collective, by its name.
double seconds(const Machine& machine, Verb verb, const std::vector<Span>& spans, double bytes,
               const std::string& way) {
  CostTerms terms;
  add_options(verb, spans, bytes, terms);
  const MachineRates rates(terms, machine);
  for (const CollectiveOption& option : terms.options)
    if (name(option) == way) return rates.seconds(option);
  ADD_FAILURE() << way << " is no way to run " << name(verb);
  return 0;
}

double cheapest(const Machine& machine, Verb verb, const std::vector<Span>& spans, double bytes) {
  CostTerms terms;
  add_options(verb, spans, bytes, terms);
  terms.routes.push_back({verb, spans.back().level, spans.back().ranks, spans.back().inside});
  const MachineRates rates(terms, machine);
  return rates.seconds(Movement{0, 1, bytes, 0, static_cast<int>(terms.options.size())}).all;
}

TEST(CollectiveOptions, SumsByLevelsUseAllLinksOfANode) {
  const double n = 553e6, in = 2 * 7. / 8 * n / inside, out = 2 * 7. / 8 * n / 8 / link;
  for (const std::string way : {"ring by levels", "rabenseifner by levels"}) {
    const auto sum = [&](const Machine& machine) { return seconds(machine, Verb::all_reduce, whole, n, way); };
    expect_seconds(sum(nodes_of_eight()), in + out, way);
    expect_seconds(sum(nodes_of_eight(1)), in + 8 * out, way + " on one link");
    expect_seconds(sum(nodes_of_eight(8, 2)), in + 2 * out, way + " if half of the links can be busy");
  }
}

TEST(CollectiveOptions, ARingCrossesOneLinkOfANodeOrAll) {
  const double n = 553e6, flat = 2 * 63. / 64 * n / link;
  const auto ring = [&](const Machine& machine, const std::string& way) {
    return seconds(machine, Verb::all_reduce, whole, n, way);
  };
  expect_seconds(ring(nodes_of_eight(), "ring"), flat);
  expect_seconds(ring(nodes_of_eight(1), "ring"), flat, "it needs one link");
  expect_seconds(ring(nodes_of_eight(8, 2), "ring"), flat, "four links can be busy");
  expect_seconds(ring(nodes_of_eight(), "ring over all links"), flat / 8);
  expect_seconds(ring(nodes_of_eight(2), "ring over all links"), flat / 2);
  Machine slow = nodes_of_eight();
  slow.levels[0].bandwidth.value = 5e9;
  expect_seconds(ring(slow, "ring over all links"), 2 * 63. / 64 * n / 5e9, "the node is slower than its links");
}

TEST(CollectiveOptions, GroupsThatRunAtTheSameTimeShareTheLinks) {
  const double n = 1e6, ring = 2 * 7. / 8 * n / link;
  const auto sum = [&](double links) {
    return seconds(nodes_of_eight(links), Verb::all_reduce, one_per_node, n, "ring");
  };
  expect_seconds(sum(8), ring);
  expect_seconds(sum(4), 2 * ring);
  expect_seconds(sum(1), 8 * ring);
}

// Recursive doubling: distances 1, 2, 4 are inside a node; 8, 16, 32 are not, and all eight ranks cross.
TEST(CollectiveOptions, DistancesDecideWhichLevelAMessageCrosses) {
  const double n = 1e6;
  const auto sum = [&](Verb verb, const std::string& way, double links = 8) {
    return seconds(nodes_of_eight(links), verb, whole, n, way);
  };
  expect_seconds(sum(Verb::all_reduce, "recursive_doubling"), 3 * n / inside + 3 * n / link);
  expect_seconds(sum(Verb::all_reduce, "recursive_doubling", 1), 3 * n / inside + 8 * 3 * n / link);
  expect_seconds(sum(Verb::all_reduce, "rabenseifner", 1), 2 * n * (7. / 64 / inside + 8 * (8 + 16 + 32) / 64. / link),
                 "halves are exchanged far away");
  expect_seconds(sum(Verb::all_reduce, "binomial", 1), 2 * (3 * n / inside + 3 * n / link),
                 "one rank of a node is in the tree");
  expect_seconds(sum(Verb::broadcast, "binomial", 1), 3 * n / inside + 3 * n / link);
  expect_seconds(sum(Verb::all_to_all, "pairwise", 1), n / 64 * (7 / inside + 8 * 56 / link), "56 peers are far away");
  expect_seconds(sum(Verb::all_gather, "bruck", 1), n / 64 / link * (1 + 2 * 2 + 4 * 4 + 8 * (8 + 16 + 32)),
                 "a shift by 1, 2, 4 brings as many ranks of a node across");
  expect_seconds(sum(Verb::reduce_scatter, "ring by levels"), 7. / 8 * n / inside + 7. / 8 * n / 8 / link);
  expect_seconds(sum(Verb::all_gather, "ring by levels", 1), 7. / 8 * n / inside + 7. / 8 * n / link);
  expect_seconds(sum(Verb::all_to_all, "pairwise by levels"), 7. / 8 * n / inside + 7. / 8 * n / link);
}

TEST(CollectiveOptions, SwitchesThatAddHalveWhatLinksCarry) {
  Machine machine = nodes_of_eight();
  machine.levels[1].reduction = {link, ""};
  const double n = 553e6, in = 2 * 7. / 8 * n / inside;
  expect_seconds(seconds(machine, Verb::all_reduce, whole, n, "sums in the network"), in + n / 8 / link);
  expect_seconds(seconds(machine, Verb::all_reduce, one_per_node, n, "sums in the network"), n / link);
}

TEST(CollectiveOptions, OneShotIsForFewRanksOfTheInnermostLevel) {
  const auto has = [](const std::vector<Span>& spans) {
    LinkTables tables;
    add_options(Verb::all_reduce, spans, 8, tables);
    return std::any_of(tables.options.begin(), tables.options.end(),
                       [](const CollectiveOption& option) { return option.levels == LevelUse::one_shot; });
  };
  EXPECT_TRUE(has({{0, 8, 1, 1}}));
  EXPECT_FALSE(has({{0, 9, 1, 1}}));
  EXPECT_FALSE(has({{1, 4, 1, 1}}));
  EXPECT_FALSE(has(whole));
  Machine machine = nodes_of_eight();
  machine.levels[0].latency.value = 2 * us;
  expect_seconds(seconds(machine, Verb::all_reduce, {{0, 8, 1, 1}}, 450, "one shot"), 2 * us + 7e-9);
}

TEST(CollectiveOptions, ACollectiveOfOneLevelCostsWhatTheLiteratureSays) {
  for (const Verb verb : {Verb::all_reduce, Verb::all_gather, Verb::reduce_scatter, Verb::broadcast, Verb::all_to_all})
    for (const int ranks : {2, 3, 8, 12, 64}) {
      CostTerms terms;
      add_options(verb, std::vector<Span>{{0, ranks, 1, 1}}, 960, terms);
      const Machine machine = round_machine();
      const MachineRates rates(terms, machine);
      for (const CollectiveOption& option : terms.options)
        if (option.levels == LevelUse::flat)
          expect_seconds(rates.seconds(option),
                         collective_cost(verb, option.algorithm, ranks, 960).seconds(1 * us, 1e-9, 3e-9),
                         fmt::format("{} by {} among {}", name(verb), name(option), ranks));
    }
}

// A library that has rings alone takes the ring where sums by levels would be cheaper.
TEST(CollectiveOptions, OnlyWhatALibraryHasIsTaken) {
  Machine machine = nodes_of_eight();
  machine.levels[1].latency.value = 100 * us;  // a ring has many rounds
  const double n = 1e6, ring = 126 * 100 * us;
  EXPECT_LT(cheapest(machine, Verb::all_reduce, whole, n), 0.2 * ring);
  machine.collectives.ways = {};
  const double flat = cheapest(machine, Verb::all_reduce, whole, n);
  EXPECT_LT(flat, ring) << "recursive algorithms need no levels";
  EXPECT_EQ(flat, seconds(machine, Verb::all_reduce, whole, n, "recursive_doubling"));
}

// The racks of a large machine, of 34 nodes of four, are no cliff: rings pass from rack to rack on all links that the
// network allows to be busy.
TEST(CollectiveOptions, MoreRacksCostLittleMore) {
  Machine machine = clustered_machine(4, 2);
  machine.levels[1].ranks = {136, ""};
  Level system = machine.levels[1];
  system.ranks = {0, ""};
  system.links = {68, ""};
  system.fan_out = {3, ""};
  machine.levels.push_back(system);
  const double n = 553e6;
  const double rack = cheapest(machine, Verb::all_reduce, {{0, 4, 1, 1}, {1, 128, 4, 1}}, n);
  const double two = cheapest(machine, Verb::all_reduce, {{0, 4, 1, 1}, {1, 136, 4, 1}, {2, 256, 136, 1}}, n);
  EXPECT_LE(two, 1.5 * rack);
  EXPECT_GT(two, rack);
}

}  // namespace
}  // namespace partita::test::collective_options_test
