#include "partita/layouts/ring.hpp"
#include "partita/base/error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace partita::ring_test {
namespace {

constexpr Index row = 2, rows = 3;  // of a place of one sample

enum class Kind : std::uint8_t { full, causal, balanced };
constexpr std::array kinds{Kind::full, Kind::causal, Kind::balanced};

/// Three heads of queries, with one channel each, share a head of keys.
Ring ring_of(const char* grid, const char* layout, Index length, Kind kind) {
  const Shape shape{{'N', 2}, {'C', row * rows}, {'L', length}};
  return {Layout::parse(layout, shape, Grid::parse(grid)), row, kind != Kind::full, kind == Kind::balanced, 3, 3};
}

/// Calls f(ring) for rings of all kinds, and of many sizes.
template <class F>
void for_rings(F&& f) {
  for (const char* grid : {"a=1", "a=2", "a=3", "a=4", "a=5", "a=7", "a=2 b=3", "a=3 b=2", "a=2 b=2 c=2"})
    for (const char* layout : {"L@a", "L@(a,b)", "L@(b,a)", "N@a L@b", "C@b L@a", "L@c C@b N@a", "L@(c,a,b)"})
      for (const Index length : {1, 2, 3, 4, 7, 13})
        for (const Kind kind : kinds) {
          const std::string_view axes(grid), uses(layout);
          if ((uses.find('b') != uses.npos && axes.find('b') == axes.npos) ||
              (uses.find('c') != uses.npos && axes.find('c') == axes.npos))
            continue;
          SCOPED_TRACE(fmt::format("{} on {} of {}, kind {}", layout, grid, length, static_cast<int>(kind)));
          f(ring_of(grid, layout, length, kind));
          if (testing::Test::HasFatalFailure()) return;
        }
}

/// All ranks of a ring, whose steps must fit one another.
struct Replay {
  explicit Replay(const Ring& ring) : of(ring) {
    for (int rank = 0; rank < ring.blocks.grid().size(); ++rank) steps.push_back(ring.steps(rank));
  }

  const RingStep* at(int rank, std::size_t t) const {
    const auto& mine = steps[static_cast<std::size_t>(rank)];
    return t < mine.size() ? &mine[t] : nullptr;
  }
  Box own(int rank) const { return of.blocks.owned(rank); }
  int ranks() const { return static_cast<int>(std::ssize(steps)); }
  bool helps(const RingStep& step, int rank) const { return step.keys == own(rank) && !(step.computed == own(rank)); }
  template <class F>
  void each_step(F&& f) const {
    for (int rank = 0; rank < ranks(); ++rank)
      for (std::size_t t = 0; t < steps[static_cast<std::size_t>(rank)].size(); ++t) f(rank, t, *at(rank, t));
  }

  /// What is sent in a step arrives in the same step, in the same part.
  void expect_messages_match() const {
    each_step([&](int rank, std::size_t t, const RingStep& step) {
      for (std::size_t part = 0; part < step.moves.size(); ++part) {
        const auto& [send, receive] = step.moves[part];
        if (send) {
          ASSERT_TRUE(at(send->peer, t) != nullptr);
          EXPECT_EQ(at(send->peer, t)->moves[part].receive, (Transfer{rank, send->box}));
        }
        if (receive) {
          ASSERT_TRUE(at(receive->peer, t) != nullptr);
          EXPECT_EQ(at(receive->peer, t)->moves[part].send, (Transfer{rank, receive->box}));
        }
      }
    });
  }

  /// A rank has what it computes with and what it sends, and returns what it has computed for others.
  void expect_moves_what_is_there() const {
    each_step([&](int rank, std::size_t t, const RingStep& step) {
      const auto& [block, sum, own_sum, queries, results] = step.moves;
      const RingStep *next = at(rank, t + 1), *before = t > 0 ? at(rank, t - 1) : nullptr;
      if (block.send) {
        EXPECT_EQ(step.keys, block.send->box);
      }
      if (block.receive) {
        EXPECT_TRUE(next != nullptr && next->keys == block.receive->box);
      }
      for (const auto* each : {&sum.send, &own_sum.send})
        if (*each) {
          EXPECT_TRUE(before != nullptr && t > 1 && before->keys == (*each)->box);
        }
      if (sum.receive) {
        EXPECT_EQ(step.keys, sum.receive->box);
      }
      if (own_sum.send) {
        EXPECT_EQ(own_sum.send->box, own(own_sum.send->peer));
      }
      if (queries.send) {
        EXPECT_TRUE(own(rank).contains(queries.send->box));
      }
      if (queries.receive) {
        EXPECT_TRUE(next != nullptr && next->computed == queries.receive->box);
      }
      if (results.receive) {
        EXPECT_TRUE(own(rank).contains(results.receive->box));
      }
      EXPECT_EQ(results.send.has_value(), before != nullptr && helps(*before, rank));
      if (results.send && before != nullptr) {
        EXPECT_EQ(results.send->box, before->computed);
      }
      if (t > 0 && helps(step, rank)) {
        EXPECT_EQ(before->moves[RingStep::queries].receive->box, step.computed);
      }
    });
  }

  /// Returns the ranks whose part of the gradient of a rank's block comes home, each as often as it does.
  std::multiset<int> added_to(int owner) const {
    std::map<int, std::multiset<int>> now;  // by rank: the parts of the sum that it passes on in this step
    std::multiset<int> home;
    for (std::size_t t = 1; t <= steps.size() + 1; ++t) {
      std::map<int, std::multiset<int>> next;
      for (int rank = 0; rank < ranks(); ++rank) {
        const RingStep* step = at(rank, t);
        if (step == nullptr) continue;
        if (const auto& from = step->moves[RingStep::own_sum].receive; from && rank == owner)
          home.merge(now[from->peer]);
        if (rank == owner || !(step->keys == own(owner)) || own(owner).empty()) continue;
        next[rank].insert(rank);
        if (const auto& from = step->moves[RingStep::sum].receive) next[rank].merge(now[from->peer]);
      }
      now = std::move(next);
    }
    return home;
  }

  /// Returns the ranks that meet the block of another rank of their ring.
  std::multiset<int> visited_by(int owner) const {
    std::multiset<int> visited;
    if (own(owner).empty()) return visited;
    for (const int rank : of.blocks.grid().group(owner, of.axes()))
      for (const RingStep& step : steps[static_cast<std::size_t>(rank)])
        if (rank != owner && step.keys == own(owner)) visited.insert(rank);
    return visited;
  }

  /// Returns how often each pair of a query and a key is computed in the ring of a rank, if a block meets itself once.
  std::map<std::pair<Index, Index>, int> pairs(int of_rank) const {
    std::map<std::pair<Index, Index>, int> pairs;
    for (const int rank : of.blocks.grid().group(of_rank, of.axes()))
      for (const RingStep& step : steps[static_cast<std::size_t>(rank)])
        for (Index query = step.computed[2].lo; step.keys && query < step.computed[2].hi; ++query)
          for (Index key = (*step.keys)[2].lo; key < (*step.keys)[2].hi; ++key)
            if (!of.causal || key <= query) ++pairs[{query, key}];
    return pairs;
  }

  Ring of;
  std::vector<std::vector<RingStep>> steps;
};

TEST(Ring, EachQueryMeetsEachKeyThatItSeesOnce) {
  for_rings([](const Ring& ring) {
    const Replay replay(ring);
    std::map<std::pair<Index, Index>, int> all;
    const Index length = ring.blocks.shape()['L'];
    for (Index query = 0; query < length; ++query)
      for (Index key = 0; key < (ring.causal ? query + 1 : length); ++key) all[{query, key}] = 1;
    for (int rank = 0; rank < replay.ranks(); ++rank)
      if (!replay.own(rank).empty()) {
        EXPECT_EQ(replay.pairs(rank), all) << "rank " << rank;
      }
  });
}

TEST(Ring, MessagesFitAndGradientsComeHome) {
  for_rings([](const Ring& ring) {
    const Replay replay(ring);
    replay.expect_messages_match();
    replay.expect_moves_what_is_there();
    for (int rank = 0; rank < replay.ranks(); ++rank) {
      EXPECT_EQ(replay.added_to(rank), replay.visited_by(rank)) << "rank " << rank;
      if (replay.own(rank).empty()) {
        EXPECT_EQ(replay.steps[static_cast<std::size_t>(rank)].size(), 1U);
      }
    }
  });
}

// With equal blocks of n places: n n / 2 pairs more than the mean at most, of n n in two blocks.
TEST(Ring, RanksOfABalancedRingHaveAsMuchWork) {
  for (int p = 1; p <= 9; ++p)
    for (const Index n : {1, 2, 5, 8}) {
      SCOPED_TRACE(fmt::format("{} ranks with {} places", p, n));
      const auto grid = fmt::format("a={}", p);
      const Ring ring = ring_of(grid.c_str(), "L@a", p * n, Kind::balanced);
      double least = ring.work(0), most = least, sum = 0;
      for (int rank = 0; rank < p; ++rank) {
        const double work = ring.work(rank);
        least = std::min(least, work);
        most = std::max(most, work);
        sum += work;
      }
      const auto size = static_cast<double>(n), own = size * (size + 1) / 2;
      EXPECT_NEAR(sum * own, p * size * (p * size + 1) / 2, 1e-9);
      // The halves of an odd number of places differ by one.
      EXPECT_NEAR((most - least) * own, p % 2 == 0 && n % 2 == 1 ? size : 0, 1e-9);
    }
}

// In each step, the one or the two blocks have no more places than the longest one.
TEST(Ring, ABalancedRingOfUnevenBlocksHasNoMoreWorkThanItsLongestBlockGives) {
  for (const Index length : {3, 5, 7, 8, 9, 11, 13, 30})
    for (const char* grid : {"a=2", "a=3", "a=4", "a=5", "a=7"}) {
      const Ring ring = ring_of(grid, "L@a", length, Kind::balanced);
      const Index ranks = std::min<Index>(ring.blocks.grid().size(), length), longest = (length + ranks - 1) / ranks,
                  half = ranks % 2 == 0 ? (longest + 1) / 2 : 0;
      const Index most = longest * (longest + 1) / 2 + ((ranks - 1) / 2 * longest + half) * longest;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto own = static_cast<double>(ring.blocks.owned(rank).extent(2));
        EXPECT_LE(ring.work(rank) * own * (own + 1) / 2, static_cast<double>(most)) << grid << " " << length;
      }
    }
}

// Seven places on three ranks are blocks of 3, 2 and 2. A place of the two samples has 6 rows, of 2 numbers of keys and
// values and, in a balanced ring, 3 of queries.
TEST(Ring, SendsBlocksToWhereTheyAreNeeded) {
  const auto sent = [](const Ring& ring, int rank) {
    EXPECT_EQ(ring.traffic(rank, false, 4, 8).peers, ring.traffic(rank, true, 4, 8).peers);
    return std::pair(sent_to_all(ring.traffic(rank, false, 4, 8).peers).bytes,
                     sent_to_all(ring.result_traffic(rank, true, 8).peers).bytes);
  };
  constexpr Index place = 12 * 4;
  const Ring full = ring_of("a=3", "L@a", 7, Kind::full), causal = ring_of("a=3", "L@a", 7, Kind::causal);
  EXPECT_EQ(sent(full, 0), std::pair(5 * place, 2 * 4 * place));  // all but the next rank's; all but its own
  EXPECT_EQ(sent(full, 1), std::pair(5 * place, 2 * 5 * place));
  EXPECT_EQ(sent(full, 2), std::pair(4 * place, 2 * 5 * place));
  EXPECT_EQ(sent(causal, 0), std::pair(3 * place, Index{0}));
  EXPECT_EQ(sent(causal, 1), std::pair(5 * place, 2 * 3 * place));
  EXPECT_EQ(sent(causal, 2), std::pair(Index{0}, 2 * 5 * place));
  EXPECT_EQ(causal.last(0), 2);
  EXPECT_EQ(full.result_traffic(1, false, 8).peers, std::vector<PeerTraffic>{});
}

// Rank 0 computes queries of rank 2 in step 1: 2 places with 6 rows of 3 numbers, and in backward also y, dy and 3 logs
// of sums. The others meet the block before theirs.
TEST(Ring, ABalancedRingSendsQueriesAndReturnsResults) {
  const Ring ring = ring_of("a=3", "L@a", 7, Kind::balanced);
  constexpr Index rows_of_two = 2 * 6;
  const auto traffic = [&](bool back) { return ring.traffic(2, back, 4, 8); };
  const auto results = [&](bool back) { return ring.result_traffic(2, back, 8); };
  using Peers = std::vector<PeerTraffic>;
  EXPECT_EQ(traffic(false).peers, (Peers{{0, {1, rows_of_two * 3 * 4}, {}}, {1, {}, {1, rows_of_two * 2 * 4}}}));
  EXPECT_EQ(traffic(true).peers,
            (Peers{{0, {4, rows_of_two * (9 * 4 + 3 * 8)}, {}}, {1, {}, {1, rows_of_two * 2 * 4}}}));
  EXPECT_EQ(results(false).peers, (Peers{{0, {}, {2, rows_of_two * (3 + 3) * 8}}}));
  EXPECT_EQ(results(true).peers, (Peers{{0, {}, {1, rows_of_two * 3 * 8}}, {1, {1, rows_of_two * 2 * 8}, {}}}));
  for (const bool back : {false, true})
    EXPECT_EQ(std::pair(traffic(back).hops, results(back).hops), std::pair(1, 1)) << "messages travel together";
}

// Places 5 and 6 see 6 and 7 places, and of their own block 1 and 2.
TEST(Ring, TheLastRankOfACausalRingHasTheMostWork) {
  const Ring causal = ring_of("a=3", "L@a", 7, Kind::causal);
  EXPECT_EQ(causal.work(0), 1);
  EXPECT_EQ(causal.work(2), 13. / 3);
  EXPECT_EQ(ring_of("a=3", "L@a", 7, Kind::full).work(2), 7. / 2);
}

// In a middle step of a forward: the block that it has, and the next one. In a backward also the gradients of the block
// before, of this one, and what others have added to it.
TEST(Ring, HoldsAFewBlocks) {
  const Ring ring = ring_of("a=4", "L@a", 8, Kind::full);
  constexpr Index block = 2 * 12;
  EXPECT_EQ(ring.workspace(0, false, 4, 4, false), 2 * block * 4);
  EXPECT_EQ(ring.workspace(0, true, 2, 4, false), 2 * block * 2 + 3 * block * 4);
  EXPECT_EQ(ring_of("a=2", "L@a", 4, Kind::full).workspace(0, false, 4, 4, true), 2 * block * 4)
      << "it packs the own block";
  EXPECT_EQ(ring_of("a=1", "L@a", 4, Kind::causal).workspace(0, true, 4, 4, true), 0);
}

// Two ranks with 4 places, and 6 rows a place. In step 1, the first one has 2 places of queries of the second one, and
// results; in step 2 the results alone. The second one has the block, and results arrive in step 2. It packs queries
// and, since places of two samples do not follow one another, in backward y, dy and logs of sums.
TEST(Ring, ABalancedRingHoldsQueriesAndResults) {
  const Ring ring = ring_of("a=2", "L@a", 8, Kind::balanced);
  constexpr Index block = 4 * 6 * 2, queries = 2 * 6 * 3, heads = 2 * 6 * 3;
  EXPECT_EQ(ring.workspace(0, false, 2, 4, false), queries * 2 + (queries + heads) * 4);
  EXPECT_EQ(ring.workspace(0, true, 2, 4, false), 3 * queries * 2 + heads * 4 + queries * 4);
  EXPECT_EQ(ring.workspace(1, false, 2, 4, true), std::max((block + queries) * 2, (queries + heads) * 4));
  EXPECT_EQ(ring.workspace(1, true, 2, 4, true),
            std::max((block + 3 * queries) * 2 + heads * 4, (block + queries) * 4));
}

}  // namespace
}  // namespace partita::ring_test
