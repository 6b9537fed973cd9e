// How wide the routes between the ranks of a unit are, and what a collective of them can use.
#include "partita/strategies/machine/pair_links.hpp"

#include "partita/base/error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace partita::pair_links_test {

namespace {

using Table = std::vector<std::vector<int>>;

int width(const PairLinks& pairs, const std::vector<int>& ranks) { return pairs.width(ranks); }

/// The fewest links between two parts of the ranks, from all ways to divide them; 0 if some part has no link.
int fewest_links(const Table& links, const std::vector<int>& ranks) {
  int fewest = 1 << 20;
  for (unsigned part = 1; part + 1 < 1U << ranks.size(); ++part) {
    int between = 0;
    for (std::size_t i = 0; i < ranks.size(); ++i)
      for (std::size_t j = 0; j < ranks.size(); ++j)
        if ((part >> i & 1U) != 0 && (part >> j & 1U) == 0) between += links[ranks[i]][ranks[j]];
    fewest = std::min(fewest, between);
  }
  return fewest;
}

/// The narrowest hop of the best route, from all routes.
int best_route(const Table& links, int from, int to, unsigned passed = 0) {
  if (from == to) return 1 << 20;
  int best = 0;
  passed |= 1U << static_cast<unsigned>(from);
  for (int next = 0; next < static_cast<int>(links.size()); ++next)
    if ((passed >> static_cast<unsigned>(next) & 1U) == 0)
      if (const int hop = links[from][next]; hop > best)
        best = std::max(best, std::min(hop, best_route(links, next, to, passed)));
  return best;
}

TEST(PairLinks, OfSwitchesAndOfFullMeshes) {
  const PairLinks none;
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.narrowest(), 1);
  // four GPUs with four links each to each: any two have 4, all together 12
  const PairLinks mesh({{0, 4, 4, 4}, {4, 0, 4, 4}, {4, 4, 0, 4}, {4, 4, 4, 0}}, "a");
  EXPECT_EQ(mesh.width(0, 3), 4);
  EXPECT_EQ(width(mesh, {1, 2}), 4);
  EXPECT_EQ(width(mesh, {0, 1, 3}), 8);
  EXPECT_EQ(width(mesh, {0, 1, 2, 3}), 12);
  EXPECT_EQ(width(mesh, {2}), 1);
}

TEST(PairLinks, OverOtherRanksWhereThereIsNoLink) {
  const PairLinks chain({{0, 4, 0}, {4, 0, 2}, {0, 2, 0}}, "a");
  EXPECT_EQ(chain.width(0, 2), 2);
  EXPECT_EQ(chain.narrowest(), 2);
  EXPECT_EQ(width(chain, {0, 2}), 2) << "over rank 1, which takes no part";
  EXPECT_EQ(width(chain, {0, 1, 2}), 2);
}

TEST(PairLinks, AgreeWithAllRoutesAndAllDivisions) {
  std::mt19937 random(7);
  for (int drawn = 0; drawn < 200; ++drawn) {
    const auto ranks = static_cast<std::size_t>(2 + drawn % 5);
    Table links(ranks, std::vector<int>(ranks, 0));
    for (std::size_t i = 1; i < ranks; ++i)
      for (std::size_t j = 0; j < i; ++j)  // the one before is always connected
        links[i][j] = links[j][i] = static_cast<int>(random() % 4) + (j + 1 == i ? 1 : 0);
    const PairLinks pairs(links, "drawn");
    std::vector<int> some(ranks);
    std::iota(some.begin(), some.end(), 0);
    int narrowest = 1 << 20;
    for (const int i : some)
      for (int j = 0; j < i; ++j) {
        EXPECT_EQ(pairs.width(i, j), best_route(links, i, j));
        narrowest = std::min(narrowest, pairs.width(i, j));
      }
    EXPECT_EQ(pairs.narrowest(), narrowest);
    std::shuffle(some.begin(), some.end(), random);
    some.resize(std::max<std::size_t>(2, ranks - random() % 2));
    narrowest = 1 << 20;
    for (std::size_t i = 0; i < some.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) narrowest = std::min(narrowest, best_route(links, some[i], some[j]));
    EXPECT_EQ(width(pairs, some), std::max(narrowest, fewest_links(links, some)));
  }
}

}  // namespace

}  // namespace partita::pair_links_test
