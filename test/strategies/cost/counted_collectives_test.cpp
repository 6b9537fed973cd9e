// CountedCollectives: collectives over units that hold different numbers of their ranks, worked out by hand. Nodes have
// 4 ranks; a message takes 1 us and a byte 1 ns inside a node, 10 us and 10 ns between nodes, which have two links. A
// byte that is added takes 3 ns.
#include "strategies/cost/counted_collectives.hpp"
#include "strategies/cost/evaluate_terms.hpp"
#include "strategies/cost/representatives.hpp"

#include "test/strategies/cost/movements.hpp"

#include <optional>

namespace partita::test::counted_collectives_test {
namespace {

/// Returns the seconds of one way to run the collective of a rank; the cheapest if none is given.
double seconds(const Machine& machine, const Grid& grid, AxisSet axes, int rank, Verb verb, double bytes,
               std::optional<CollectiveOption> way = {}) {
  CostTerms terms;
  CountedCollectives all(machine, grid, axes, verb);
  all.add_options(rank, bytes, terms);
  terms.routes = {all.route(rank)};
  const MachineRates rates(terms, machine);
  const Movement movement{0, 1, bytes, 0, static_cast<int>(terms.options.size())};
  if (!way) return rates.seconds(movement).all;
  for (const CollectiveOption& option : terms.options)
    if (option.algorithm == way->algorithm && option.levels == way->levels) return rates.seconds(option);
  ADD_FAILURE() << "there is no such way";
  return 0;
}

const Machine machine = two_levels(2);
constexpr double n = 12000;

// Ranks 0 to 5 by recursive doubling: 1 hands its vector to 0 and 3 to 2; then 0 and 2 exchange, like 4 and 5; then 0
// and 2 with those, over one link each; then 1 and 3 get the result.
TEST(CountedCollectives, EachRankWaitsForItsOwnPartners) {
  const Grid six = Grid::parse("n=6");
  const double near = 1 * us + n * 1e-9, far = 10 * us + n * 1e-8, adds = 3 * n * 3e-9;
  expect_seconds(
      seconds(machine, six, 1, 0, Verb::all_reduce, n, {{CollectiveAlgorithm::recursive_doubling, LevelUse::flat}}),
      3 * near + far + adds);
}

// A ring of 5 passes the node of four and a rank alone: each block crosses between them.
TEST(CountedCollectives, ARingIsAsSlowAsItsSlowestLevel) {
  expect_seconds(
      seconds(machine, Grid::parse("n=5"), 1, 2, Verb::all_gather, n, {{CollectiveAlgorithm::ring, LevelUse::flat}}),
      4 * (10 * us + n / 5 * 1e-8));
}

// Ranks 0 to 4 by levels: the shares of the four ranks of a node all go to the rank that is alone, over its one link.
TEST(CountedCollectives, ARankOfASmallUnitHasSeveralShares) {
  expect_seconds(seconds(machine, Grid::parse("n=5"), 1, 0, Verb::all_gather, n,
                         {{CollectiveAlgorithm::ring, LevelUse::by_levels}}),
                 10 * us + 4 * (n / 4 / 2) * 1e-8 + 3 * (1 * us + n / 4 * 1e-9));
}

// The axis c of "n=3 c=3" has the ranks 0 to 2, 3 to 5 and 6 to 8. The first need no links of their node; 3 has them to
// itself; 4 and 5 share theirs with 6 and 7, two links for four ranks.
TEST(CountedCollectives, OnlyThoseThatCrossShareLinks) {
  const Grid grid = Grid::parse("n=3 c=3");
  const AxisSet c = 2;
  const CollectiveOption ring{CollectiveAlgorithm::ring, LevelUse::flat};
  expect_seconds(seconds(machine, grid, c, 1, Verb::all_gather, n, ring), 2 * (1 * us + n / 3 * 1e-9), "inside");
  // by rings, one rank of each of the two collectives crosses the border of the second node in either direction
  expect_seconds(seconds(machine, grid, c, 4, Verb::all_gather, n, ring), 2 * (10 * us + n / 3 * 1e-8), "across");
  const Machine one_link = two_levels(1);
  expect_seconds(seconds(one_link, grid, c, 4, Verb::all_gather, n, ring), 2 * (10 * us + 2 * n / 3 * 1e-8),
                 "two collectives leave the second node by its one link");
  EXPECT_EQ(CountedCollectives(machine, grid, c, Verb::all_gather).ranks_with(4), (std::vector{3, 4, 5}));
}

// Twice the bytes take twice as long, but for the latencies; and no link is free.
TEST(CountedCollectives, TimesGrowWithBytes) {
  for (const Verb verb : {Verb::all_reduce, Verb::all_gather, Verb::reduce_scatter, Verb::broadcast, Verb::all_to_all})
    for (const char* text : {"n=5", "n=6", "n=9", "n=23", "n=50", "n=3 c=3", "n=2 c=5", "a=2 b=3 c=3"}) {
      const Grid grid = Grid::parse(text);
      for (AxisSet axes = 1; axes <= grid.all(); ++axes) {
        const double once = seconds(machine, grid, axes, 0, verb, n),
                     twice = seconds(machine, grid, axes, 0, verb, 2 * n);
        EXPECT_GT(once, 0) << text;
        EXPECT_GT(twice, once) << text;
        EXPECT_LE(twice, 2 * once * (1 + 1e-9)) << text;
      }
    }
}

// A stage may lie across nodes although it has fewer ranks than a node.
TEST(CountedCollectives, StagesMayStraddleNodes) {
  for (const auto& [text, first, crosses] :
       {std::tuple("n=3", 0, false), std::tuple("n=3", 3, true), std::tuple("n=2", 2, false),
        std::tuple("n=4", 4, false), std::tuple("n=4", 2, true), std::tuple("n=6", 0, true),
        std::tuple("n=8", 4, false), std::tuple("n=1", 3, false)})
    EXPECT_EQ(straddles(Grid::parse(text, first), machine), crosses) << text << " from rank " << first;
  const CollectiveOption ring{CollectiveAlgorithm::ring, LevelUse::flat};
  expect_seconds(seconds(machine, Grid::parse("n=3", 3), 1, 4, Verb::all_gather, n, ring),
                 2 * (10 * us + n / 3 * 1e-8));
}

TEST(CountedCollectives, AThreadKeepsThem) {
  const Grid grid = Grid::parse("n=5");
  const auto once = CountedCollectives::find(machine, grid, 1, Verb::all_reduce);
  EXPECT_EQ(CountedCollectives::find(machine, grid, 1, Verb::all_reduce), once);
  EXPECT_NE(CountedCollectives::find(machine, grid, 1, Verb::all_gather), once);
  EXPECT_NE(CountedCollectives::find(machine, grid.at(2), 1, Verb::all_reduce), once);
  EXPECT_NE(CountedCollectives::find(clustered_machine(3, 1), grid, 1, Verb::all_reduce), once);
}

}  // namespace
}  // namespace partita::test::counted_collectives_test
