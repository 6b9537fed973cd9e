#include "strategies/cost/collective_cost.hpp"
#include "test/support/collective_traffic.hpp"

#include "test/support/error_of.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace partita::collective_cost_test {
namespace {

using enum CollectiveAlgorithm;

CollectiveCall equal(Verb verb, CollectiveAlgorithm algorithm, int ranks, Index count) {
  const auto p = static_cast<std::size_t>(ranks);
  return {verb, algorithm, ranks, std::vector<Index>(verb == Verb::all_to_all ? p * p : p, count), DType::f32, 0};
}

TEST(CollectiveTraffic, OfPowersOfTwoIsThatOfTheLiteratureOnEveryRank) {
  constexpr int p = 64, log2 = 6;
  constexpr Index n = 4 * 3 * p;  // three floats per rank
  constexpr Index most = n / p * (p - 1);
  for (int rank = 0; rank < p; ++rank) {
    const auto whole = [&](CollectiveAlgorithm algorithm) {
      return collective_traffic({Verb::all_reduce, algorithm, p, {Index{3} * p}, DType::f32, 0}, rank);
    };
    EXPECT_EQ(whole(recursive_doubling), (Traffic{log2, log2 * n}));
    EXPECT_EQ(whole(ring), (Traffic{2 * (p - 1), 2 * most}));
    EXPECT_EQ(whole(rabenseifner), (Traffic{2 * log2, 2 * most}));
    for (const CollectiveAlgorithm algorithm : {recursive_doubling, bruck})
      EXPECT_EQ(collective_traffic(equal(Verb::all_gather, algorithm, p, 3), rank), (Traffic{log2, most}));
    EXPECT_EQ(collective_traffic(equal(Verb::all_gather, ring, p, 3), rank), (Traffic{p - 1, most}));
    EXPECT_EQ(collective_traffic(equal(Verb::reduce_scatter, recursive_halving, p, 3), rank), (Traffic{log2, most}));
    for (const CollectiveAlgorithm algorithm : {ring, pairwise})
      EXPECT_EQ(collective_traffic(equal(Verb::reduce_scatter, algorithm, p, 3), rank), (Traffic{p - 1, most}));
    EXPECT_EQ(collective_traffic(equal(Verb::all_to_all, pairwise, p, 3), rank), (Traffic{p - 1, most}));
    EXPECT_EQ(collective_traffic(equal(Verb::all_to_all, bruck, p, 3), rank), (Traffic{log2, log2 * n / 2}));
  }
}

TEST(CollectiveTraffic, ABroadcastHasTheEdgesOfItsTree) {
  for (const int p : {1, 2, 5, 4096, 5000}) {
    Traffic down, twice;
    for (int rank = 0; rank < p; ++rank) {
      down += collective_traffic({Verb::broadcast, binomial, p, {10}, DType::f32, p / 3}, rank);
      twice += collective_traffic({Verb::all_reduce, binomial, p, {10}, DType::f32, 0}, rank);
    }
    EXPECT_EQ(down, (Traffic{p - 1, 40 * (p - 1)}));
    EXPECT_EQ(twice, (Traffic{2 * (p - 1), 80 * (p - 1)}));
  }
}

TEST(CollectiveTraffic, EmptyBlocksSendNothing) {
  // 5 elements over 8 ranks give blocks 0 to 4. To sum, a rank sends all blocks but its own; to gather, all but its
  // right neighbor's.
  const CollectiveCall call{Verb::all_reduce, ring, 8, {5}, DType::f64, 0};
  EXPECT_EQ(collective_traffic(call, 4), (Traffic{4 + 5, 8 * (4 + 5)}));
  EXPECT_EQ(collective_traffic(call, 7), (Traffic{5 + 4, 8 * (5 + 4)}));
}

TEST(CollectiveTraffic, RefusesWhatCannotBe) {
  const auto text = [](const CollectiveCall& call, int rank) {
    return test::error_of([&] { collective_traffic(call, rank); });
  };
  EXPECT_EQ(text({Verb::all_reduce, bruck, 2, {1}, DType::f32, 0}, 0),
            "bruck is not an algorithm of all_reduce, which has 'recursive_doubling', 'ring', 'rabenseifner', "
            "'binomial'");
  EXPECT_EQ(text({Verb::exchange, ring, 2, {1}, DType::f32, 0}, 0),
            "ring is not an algorithm of exchange, which has none");
  EXPECT_EQ(text({Verb::all_gather, ring, 2, {1}, DType::f32, 0}, 0), "all_gather over 2 ranks needs 2 counts, not 1");
  EXPECT_EQ(text({Verb::all_to_all, bruck, 2, {1, 1}, DType::f32, 0}, 0),
            "all_to_all over 2 ranks needs 4 counts, not 2");
  EXPECT_EQ(text({Verb::all_reduce, ring, 2, {-1}, DType::f32, 0}, 0),
            "all_reduce over 2 ranks cannot move -1 elements");
  EXPECT_EQ(text({Verb::all_reduce, ring, 2, {1}, DType::f32, 0}, 2), "all_reduce over 2 ranks has no rank 2");
  EXPECT_EQ(text({Verb::broadcast, binomial, 2, {1}, DType::f32, 2}, 0), "broadcast over 2 ranks has no root 2");
}

TEST(CollectiveCost, IsThatOfTheLiterature) {
  using Cost = CollectiveCost;
  const auto cost = [](Verb verb, CollectiveAlgorithm algorithm, int p) {
    return collective_cost(verb, algorithm, p, 48);
  };
  EXPECT_EQ(cost(Verb::all_reduce, recursive_doubling, 8), (Cost{3, 3 * 48, 3 * 48}));
  EXPECT_EQ(cost(Verb::all_reduce, ring, 8), (Cost{14, 84, 42}));
  EXPECT_EQ(cost(Verb::all_reduce, rabenseifner, 8), (Cost{6, 84, 42}));
  EXPECT_EQ(cost(Verb::all_reduce, binomial, 8), (Cost{6, 6 * 48, 3 * 48}));
  EXPECT_EQ(cost(Verb::all_gather, ring, 8), (Cost{7, 42, 0}));
  EXPECT_EQ(cost(Verb::all_gather, recursive_doubling, 8), (Cost{3, 42, 0}));
  EXPECT_EQ(cost(Verb::all_gather, bruck, 8), (Cost{3, 42, 0}));
  EXPECT_EQ(cost(Verb::reduce_scatter, pairwise, 8), (Cost{7, 42, 42}));
  EXPECT_EQ(cost(Verb::reduce_scatter, ring, 8), (Cost{7, 42, 42}));
  EXPECT_EQ(cost(Verb::reduce_scatter, recursive_halving, 8), (Cost{3, 42, 42}));
  EXPECT_EQ(cost(Verb::broadcast, binomial, 8), (Cost{3, 3 * 48, 0}));
  EXPECT_EQ(cost(Verb::broadcast, scatter_all_gather, 8), (Cost{3 + 7, 84, 0}));
  EXPECT_EQ(cost(Verb::all_to_all, pairwise, 8), (Cost{7, 42, 0}));
  EXPECT_EQ(cost(Verb::all_to_all, bruck, 8), (Cost{3, 3 * 24, 0}));
}

TEST(CollectiveCost, CountsTheRanksBeyondAPowerOfTwo) {
  // Six ranks fold into four places. The first two places have two ranks each. A block has 8 bytes.
  using Cost = CollectiveCost;
  const auto cost = [](Verb verb, CollectiveAlgorithm algorithm) { return collective_cost(verb, algorithm, 6, 48); };
  EXPECT_EQ(cost(Verb::all_reduce, recursive_doubling), (Cost{4, 4 * 48, 3 * 48}));
  EXPECT_EQ(cost(Verb::all_reduce, rabenseifner), (Cost{6, 2 * 36 + 2 * 48, 36 + 48}));
  EXPECT_EQ(cost(Verb::all_reduce, binomial), (Cost{6, 6 * 48, 3 * 48}));
  EXPECT_EQ(cost(Verb::all_reduce, ring), (Cost{10, 80, 40}));
  EXPECT_EQ(cost(Verb::all_gather, recursive_doubling), (Cost{4, 8 * (1 + 2 + 4) + 48, 0}));
  EXPECT_EQ(cost(Verb::all_gather, bruck), (Cost{3, 40, 0}));
  EXPECT_EQ(cost(Verb::reduce_scatter, recursive_halving), (Cost{4, 48 + 8 * (4 + 2 + 1), 48 + 8 * (4 + 2)}));
  EXPECT_EQ(cost(Verb::broadcast, scatter_all_gather), (Cost{3 + 5, 80, 0}));
  // The rounds move the blocks of distances 1 3 5, then 2 3, then 4 5.
  EXPECT_EQ(cost(Verb::all_to_all, bruck), (Cost{3, 8 * (3 + 2 + 2), 0}));
}

TEST(CollectiveCost, NothingIsFree) {
  for (const Verb verb : {Verb::all_reduce, Verb::all_gather, Verb::reduce_scatter, Verb::broadcast, Verb::all_to_all})
    for (const CollectiveAlgorithm algorithm : algorithms(verb)) {
      EXPECT_EQ(collective_cost(verb, algorithm, 1, 100), CollectiveCost{});
      EXPECT_EQ(collective_cost(verb, algorithm, 100, 0), CollectiveCost{});
    }
  EXPECT_DOUBLE_EQ(CollectiveCost({2, 10, 5}).seconds(3, 0.5, 0.25), 6 + 5 + 1.25);
  EXPECT_EQ(test::error_of([] { collective_cost(Verb::all_reduce, ring, 0, 8); }),
            "all_reduce needs at least one rank, not 0");
  EXPECT_EQ(test::error_of([] { collective_cost(Verb::all_reduce, ring, 2, -8); }), "all_reduce cannot move -8 bytes");
}

TEST(CollectiveCost, TheCheapestHasFewRoundsOfLittleAndFewBytesOfMuch) {
  const auto best = [](Verb verb, int ranks, double bytes) {
    const auto seconds = [&](CollectiveAlgorithm algorithm) {  // latency 1 us, 10 GB/s for messages and for sums
      return collective_cost(verb, algorithm, ranks, bytes).seconds(1e-6, 1e-10, 1e-10);
    };
    const auto all = algorithms(verb);
    return *std::min_element(all.begin(), all.end(),
                             [&](CollectiveAlgorithm a, CollectiveAlgorithm b) { return seconds(a) < seconds(b); });
  };
  EXPECT_EQ(best(Verb::all_reduce, 64, 8), recursive_doubling);
  EXPECT_EQ(best(Verb::all_reduce, 64, 1e8), rabenseifner);
  EXPECT_EQ(best(Verb::all_reduce, 48, 1e8), ring) << "folding costs two rounds of everything";
  EXPECT_EQ(best(Verb::all_gather, 48, 1e3), bruck);
  EXPECT_EQ(best(Verb::reduce_scatter, 64, 1e3), recursive_halving);
  EXPECT_EQ(best(Verb::reduce_scatter, 48, 1e8), pairwise);
  EXPECT_EQ(best(Verb::broadcast, 64, 8), binomial);
  EXPECT_EQ(best(Verb::broadcast, 64, 1e8), scatter_all_gather);
  EXPECT_EQ(best(Verb::all_to_all, 64, 1e3), bruck);
  EXPECT_EQ(best(Verb::all_to_all, 64, 1e8), pairwise);
}

}  // namespace
}  // namespace partita::collective_cost_test
