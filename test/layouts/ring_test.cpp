#include "partita/layouts/ring.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace partita::ring_test {
namespace {

constexpr Index row = 2, rows = 3;  // of a place of one sample

Ring ring_of(const char* grid, const char* layout, Index length, bool causal) {
  return {Layout::parse(layout, Shape{{'N', 2}, {'C', row * rows}, {'L', length}}, Grid::parse(grid)), row, causal};
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

  /// What is sent in a step arrives in the same step: blocks, and what has been added to their gradients.
  void expect_messages_match() const {
    for (int rank = 0; rank < std::ssize(steps); ++rank)
      for (std::size_t t = 0; t < steps[static_cast<std::size_t>(rank)].size(); ++t) {
        const RingStep& step = *at(rank, t);
        if (step.block_to) {
          const RingStep *to = at(*step.block_to, t), *next = at(*step.block_to, t + 1);
          ASSERT_TRUE(to != nullptr && next != nullptr);
          EXPECT_EQ(to->block_from, rank);
          EXPECT_EQ(next->block, step.block);
        }
        if (step.block_from) {
          ASSERT_TRUE(at(*step.block_from, t) != nullptr);
          EXPECT_EQ(at(*step.block_from, t)->block_to, rank);
        }
        if (step.sum_to) {
          const RingStep* to = at(*step.sum_to, t);
          const Box sent = *at(rank, t - 1)->block;
          ASSERT_TRUE(to != nullptr);
          EXPECT_TRUE(sent == own(*step.sum_to) ? to->own_from == rank : to->sum_from == rank && to->block == sent);
        }
        for (const auto& from : {step.sum_from, step.own_from}) {
          if (!from) continue;
          ASSERT_TRUE(at(*from, t) != nullptr);
          EXPECT_EQ(at(*from, t)->sum_to, rank);
        }
      }
  }

  /// Returns the ranks whose part of the gradient of a rank's block comes home, each as often as it does.
  std::multiset<int> added_to(int owner) const {
    std::map<int, std::multiset<int>> now;  // by rank: the parts of the sum that it passes on in this step
    std::multiset<int> home;
    for (std::size_t t = 1; t <= steps.size() + 1; ++t) {
      std::map<int, std::multiset<int>> next;
      for (int rank = 0; rank < std::ssize(steps); ++rank) {
        const RingStep* step = at(rank, t);
        if (step == nullptr) continue;
        if (step->own_from && rank == owner) home.merge(now[*step->own_from]);
        if (!step->block || !(*step->block == own(owner)) || step->block->empty()) continue;
        next[rank].insert(rank);
        if (step->sum_from) next[rank].merge(now[*step->sum_from]);
      }
      now = std::move(next);
    }
    return home;
  }

  Ring of;
  std::vector<std::vector<RingStep>> steps;
};

TEST(Ring, EveryRankMeetsEachBlockThatItNeedsOnceAndGradientsComeHome) {
  for (const char* grid : {"a=1", "a=2", "a=3", "a=5", "a=2 b=3", "a=3 b=2", "a=2 b=2 c=2"})
    for (const char* layout : {"L@a", "L@(a,b)", "L@(b,a)", "N@a L@b", "C@b L@a", "L@c C@b N@a"})
      for (const Index length : {1, 2, 3, 4, 7, 13})
        for (const bool causal : {true, false}) {
          const std::string_view axes(grid), uses(layout);
          if ((uses.find('b') != uses.npos && axes.find('b') == axes.npos) ||
              (uses.find('c') != uses.npos && axes.find('c') == axes.npos))
            continue;
          SCOPED_TRACE(fmt::format("{} on {} of {}{}", layout, grid, length, causal ? " causal" : ""));
          const Replay replay(ring_of(grid, layout, length, causal));
          replay.expect_messages_match();
          if (HasFatalFailure()) return;
          const Grid& all = replay.of.blocks.grid();
          for (int rank = 0; rank < all.size(); ++rank) {
            const Box own = replay.own(rank);
            if (own.empty()) {
              EXPECT_EQ(replay.steps[static_cast<std::size_t>(rank)].size(), 1U);
              continue;
            }
            std::multiset<Index> met, needed;
            for (const RingStep& step : replay.steps[static_cast<std::size_t>(rank)])
              if (step.block) met.insert((*step.block)[2].lo);
            std::multiset<int> others;  // that need the block of this rank
            for (const int other : all.group(rank, replay.of.axes())) {
              const Box box = replay.own(other);
              if (box.empty()) continue;
              if (!causal || box[2].lo <= own[2].lo) needed.insert(box[2].lo);
              if (other != rank && (!causal || box[2].lo > own[2].lo)) others.insert(other);
            }
            EXPECT_EQ(met, needed) << "rank " << rank;
            EXPECT_EQ(replay.added_to(rank), others) << "rank " << rank;
          }
        }
}

// Seven places on three ranks are blocks of 3, 2 and 2. A place of the two samples has 12 elements.
TEST(Ring, SendsBlocksToWhereTheyAreNeeded) {
  const auto sent = [](const Ring& ring, int rank) {
    return std::pair(sent_to_all(ring.traffic(rank, 4)).bytes, sent_to_all(ring.gradient_traffic(rank, 8)).bytes);
  };
  constexpr Index place = 12 * 4;
  const Ring full = ring_of("a=3", "L@a", 7, false), causal = ring_of("a=3", "L@a", 7, true);
  EXPECT_EQ(sent(full, 0), std::pair(5 * place, 2 * 4 * place));  // all but the next rank's; all but its own
  EXPECT_EQ(sent(full, 1), std::pair(5 * place, 2 * 5 * place));
  EXPECT_EQ(sent(full, 2), std::pair(4 * place, 2 * 5 * place));
  EXPECT_EQ(sent(causal, 0), std::pair(3 * place, Index{0}));
  EXPECT_EQ(sent(causal, 1), std::pair(5 * place, 2 * 3 * place));
  EXPECT_EQ(sent(causal, 2), std::pair(Index{0}, 2 * 5 * place));
  EXPECT_EQ(causal.last(0), 2);
}

// Places 5 and 6 see 6 and 7 places, and of their own block 1 and 2.
TEST(Ring, TheLastRankOfACausalRingHasTheMostWork) {
  const Ring causal = ring_of("a=3", "L@a", 7, true);
  EXPECT_EQ(causal.work(0), 1);
  EXPECT_EQ(causal.work(2), 13. / 3);
  EXPECT_EQ(ring_of("a=3", "L@a", 7, false).work(2), 7. / 2);
}

// In a middle step of a forward: the block that it has, and the next one. In a backward also the gradients of the block
// before, of this one, and what others have added to it.
TEST(Ring, HoldsAFewBlocks) {
  const Ring ring = ring_of("a=4", "L@a", 8, false);
  constexpr Index block = 2 * 12;
  EXPECT_EQ(ring.workspace(0, 4, 0, false), 2 * block * 4);
  EXPECT_EQ(ring.workspace(0, 2, 4, false), 2 * block * 2 + 3 * block * 4);
  EXPECT_EQ(ring_of("a=2", "L@a", 4, false).workspace(0, 4, 0, true), 2 * block * 4) << "it packs the own block";
  EXPECT_EQ(ring_of("a=1", "L@a", 4, true).workspace(0, 4, 4, true), 0);
}

}  // namespace
}  // namespace partita::ring_test
