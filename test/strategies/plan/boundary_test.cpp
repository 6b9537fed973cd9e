// Transfers between two stages: every rank gets its block, once, and replicas share the work.
#include "partita/strategies/plan/plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace partita::boundary_test {

namespace {

/// The transfers of all ranks of two stages.
struct Transfers {
  Transfers(const StageBoundary& boundary, bool back)
      : have(back ? boundary.to : boundary.from), need(back ? boundary.from : boundary.to) {
    for (const Layout* layout : {&have, &need})
      for (int r = 0; r < layout->grid().size(); ++r) {
        const int rank = layout->grid().first_rank() + r;
        of_rank[rank] = boundary.transfer(rank, back);
      }
  }
  Layout have, need;
  std::map<int, TransferPlan> of_rank;
};

/// Every message that is sent is received, and nothing else is.
void expect_matched(const Transfers& all, const std::string& what) {
  std::map<std::pair<int, int>, Box> sent, received;  // by sender and receiver
  for (const auto& [rank, plan] : all.of_rank) {
    EXPECT_TRUE(plan.locals.empty()) << what;
    for (const auto& each : plan.sends) EXPECT_TRUE(sent.try_emplace({rank, each.peer}, each.box).second) << what;
    for (const auto& each : plan.recvs) EXPECT_TRUE(received.try_emplace({each.peer, rank}, each.box).second) << what;
  }
  EXPECT_EQ(sent.size(), received.size()) << what;
  for (const auto& [ends, box] : sent) {
    const auto found = received.find(ends);
    EXPECT_TRUE(found != received.end() && found->second == box) << what << ": " << ends.first << " to " << ends.second;
  }
}

/// What a rank receives are disjoint parts of blocks that the senders own, and together the block that it needs.
void expect_whole_blocks(const Transfers& all, const std::string& what) {
  for (int r = 0; r < all.need.grid().size(); ++r) {
    Index elements = 0;
    const Box needed = all.need.owned(r);
    const auto& recvs = all.of_rank.at(all.need.grid().first_rank() + r).recvs;
    for (std::size_t i = 0; i < recvs.size(); ++i) {
      const int sender = recvs[i].peer - all.have.grid().first_rank();
      EXPECT_EQ(intersect(all.have.owned(sender), needed), recvs[i].box) << what << ", receiver " << r;
      for (std::size_t j = 0; j < i; ++j) EXPECT_TRUE(intersect(recvs[i].box, recvs[j].box).empty()) << what;
      elements += recvs[i].box.volume();
    }
    EXPECT_EQ(elements, needed.volume()) << what << ", receiver " << r;
  }
}

TEST(StageBoundary, EveryRankGetsItsBlockOnce) {
  const Shape shape{{'N', 5}, {'C', 3}, {'H', 7}};
  const auto layouts = {"N C H", "N@a", "N@b C@a", "C@c H@(b,a)", "N@(a,b,c)", "H@b"};
  const Grid first = Grid::parse("a=2 b=3 c=2", 4), second = Grid::parse("c=4 a=2 b=2", 20);
  for (const char* from : layouts)
    for (const char* to : layouts) {
      const StageBoundary boundary{1, Layout::parse(from, shape, first), Layout::parse(to, shape, second), {}};
      for (const bool back : {false, true}) {
        const Transfers all(boundary, back);
        const std::string what = fmt::format("\"{}\" to \"{}\"{}", from, to, back ? ", back" : "");
        expect_matched(all, what);
        expect_whole_blocks(all, what);
      }
      EXPECT_EQ(boundary.transfer(0, false).sends.size(), 0U) << "not a rank of either stage";
    }
}

// A whole tensor on every rank, as between stages with tensor parallelism: each rank sends to one other.
TEST(StageBoundary, ReplicasSendEquallyMuch) {
  const Shape shape{{'N', 8}, {'C', 6}};
  const auto messages = [&](const char* from, const Grid& grid, const char* to, const Grid& other) {
    const StageBoundary boundary{1, Layout::parse(from, shape, grid), Layout::parse(to, shape, other), {}};
    std::vector<std::size_t> sent;
    for (int r = 0; r < grid.size(); ++r) sent.push_back(boundary.transfer(grid.first_rank() + r, false).sends.size());
    return sent;
  };
  const Grid four = Grid::parse("c=4", 0), next = Grid::parse("c=4", 4), eight = Grid::parse("d=8", 4),
             mixed = Grid::parse("data=2 c=2", 0), mixed_next = Grid::parse("data=2 c=2", 4);
  EXPECT_EQ(messages("N C", four, "N C", next), (std::vector<std::size_t>{1, 1, 1, 1}));
  EXPECT_EQ(messages("N C", four, "N C", eight), (std::vector<std::size_t>{2, 2, 2, 2})) << "the axis has another name";
  EXPECT_EQ(messages("N@data C", mixed, "N@data C", mixed_next), (std::vector<std::size_t>{1, 1, 1, 1}));
  EXPECT_EQ(messages("N C@c", four, "N C", next), (std::vector<std::size_t>{4, 4, 4, 4})) << "nothing is replicated";
}

}  // namespace

}  // namespace partita::boundary_test
