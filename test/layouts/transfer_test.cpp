#include "partita/layouts/transfer.hpp"

#include "partita/layouts/layout.hpp"
#include "test/support/grids.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace partita::transfer_test {
namespace {

using Point = std::pair<Index, Index>;

std::vector<Point> points(const Box& box) {
  std::vector<Point> all;
  for (Index i = box[0].lo; i < box[0].hi; ++i)
    for (Index j = box[1].lo; j < box[1].hi; ++j) all.emplace_back(i, j);
  return all;
}

bool holds(const Box& box, Point p) {
  return p.first >= box[0].lo && p.first < box[0].hi && p.second >= box[1].lo && p.second < box[1].hi;
}

/// Returns the owner of p nearest to `receiver` by distance on the grid (the lowest of equally near ones), or -1.
int nearest_owner(const std::vector<Box>& owned, Point p, int receiver, const Grid& grid) {
  int best = -1;
  for (int rank = 0; rank < grid.size(); ++rank)
    if (holds(owned[rank], p) && (best < 0 || grid.distance(rank, receiver) < grid.distance(best, receiver)))
      best = rank;
  return best;
}

/// Returns for each element that the rank gets where it comes from. Fails if an element arrives twice.
std::map<Point, int> arrivals(const TransferPlan& plan) {
  std::map<Point, int> from;
  for (const auto& part : {plan.recvs, plan.locals})
    for (const auto& [peer, box] : part) {
      EXPECT_FALSE(box.empty());
      for (const auto& p : points(box)) EXPECT_TRUE(from.emplace(p, peer).second) << "arrives twice";
    }
  return from;
}

void check_arrivals(const std::vector<Box>& owned, const std::vector<Box>& needed, const Grid& grid) {
  for (int rank = 0; rank < grid.size(); ++rank) {
    const auto plan = plan_transfer(owned, needed, rank, grid);
    std::map<Point, int> expected;
    for (const auto& p : points(needed[rank]))
      if (const int owner = nearest_owner(owned, p, rank, grid); owner >= 0) expected[p] = owner;
    EXPECT_EQ(arrivals(plan), expected);
    for (const auto& local : plan.locals) EXPECT_EQ(local.peer, rank);
  }
}

std::vector<Box> between(const std::vector<Transfer>& transfers, int peer) {
  std::vector<Box> boxes;
  for (const auto& transfer : transfers)
    if (transfer.peer == peer) boxes.push_back(transfer.box);
  return boxes;
}

void check_pairs(const std::vector<Box>& owned, const std::vector<Box>& needed, const Grid& grid) {
  std::vector<TransferPlan> plans;
  for (int rank = 0; rank < grid.size(); ++rank) plans.push_back(plan_transfer(owned, needed, rank, grid));
  for (int a = 0; a < grid.size(); ++a)
    for (int b = 0; b < grid.size(); ++b) {
      const auto sent = between(plans[a].sends, b);
      EXPECT_EQ(sent, between(plans[b].recvs, a)) << a << " to " << b;
      EXPECT_TRUE(a != b || sent.empty());
    }
}

void check(const std::vector<Box>& owned, const std::vector<Box>& needed, const Grid& grid) {
  check_arrivals(owned, needed, grid);
  check_pairs(owned, needed, grid);
}

TEST(Transfer, RandomNeedsOfEveryLayoutArriveOnceFromTheNearestOwner) {
  std::mt19937 random(11);
  std::uniform_int_distribution<Index> at(-1, 6), extent(0, 6);
  for (const auto* text : {"", "a=2", "a=3 b=2", "a=2 b=2 c=2"})
    for (const auto& shape : {Shape{{'N', 5}, {'H', 7}}, Shape{{'N', 1}, {'H', 3}}, Shape{{'N', 0}, {'H', 3}}}) {
      const auto grid = Grid::parse(text);
      for (const auto& layout : test::all_layouts(shape, grid)) {
        std::vector<Box> needed;
        for (int rank = 0; rank < grid.size(); ++rank) {
          Box box(2);
          for (int d = 0; d < 2; ++d) box[d].lo = at(random), box[d].hi = box[d].lo + extent(random);
          needed.push_back(box);
        }
        check(layout.owned(), needed, grid);
      }
    }
}

TEST(Transfer, WhatNoRankOwnsIsNotTransferred) {
  const auto grid = Grid::parse("a=2");
  std::vector<Box> owned(2, Box(2)), needed(2, Box(Shape{{'N', 4}, {'H', 4}}));
  owned[0][0] = {0, 1}, owned[0][1] = {0, 4};
  owned[1][0] = {2, 3}, owned[1][1] = {0, 4};  // no rank owns rows 1 and 3
  check(owned, needed, grid);
  const auto plan = plan_transfer(owned, needed, 0, grid);
  EXPECT_EQ(plan.sent(), 4);
  EXPECT_EQ(plan.recvs, (std::vector<Transfer>{{1, owned[1]}}));
}

TEST(Transfer, NothingMovesWhereEveryRankNeedsWhatItOwns) {
  const auto grid = Grid::parse("a=2 b=2");
  for (const auto& layout : test::all_layouts(Shape{{'N', 3}, {'H', 1}}, grid))
    for (int rank = 0; rank < grid.size(); ++rank) {
      const TransferPlan plan = plan_transfer(layout.owned(), layout.owned(), rank, grid);
      EXPECT_TRUE(plan.sends.empty() && plan.recvs.empty());
    }
}

TEST(Transfer, OfReplicasTheOneWithTheReceiversOtherCoordinatesSends) {
  const auto grid = Grid::parse("data=2 y=2");
  const auto layout = Layout::parse("H@y", Shape{{'N', 2}, {'H', 4}}, grid);
  auto needed = layout.owned();
  for (auto& box : needed) box[1] = {0, 4};
  for (int rank = 0; rank < 4; ++rank) {
    const auto plan = plan_transfer(layout.owned(), needed, rank, grid);
    ASSERT_EQ(plan.recvs.size(), 1U);
    EXPECT_EQ(grid.coordinate(plan.recvs[0].peer, 0), grid.coordinate(rank, 0));
  }
}

bool operator==(const TransferPlan& a, const TransferPlan& b) {
  return a.sends == b.sends && a.recvs == b.recvs && a.locals == b.locals;
}

TEST(Transfer, BetweenLayoutsOnlyRanksThatDifferAlongWhatChangesMatter) {
  for (const auto* text : {"a=3", "a=3 b=2", "a=2 b=1 c=2"}) {
    const auto grid = Grid::parse(text);
    for (const auto& shape : {Shape{{'N', 5}, {'H', 7}}, Shape{{'N', 1}, {'H', 3}}, Shape{{'N', 0}, {'H', 3}}}) {
      const auto layouts = test::all_layouts(shape, grid);
      for (const auto& from : layouts)
        for (const auto& to : layouts)
          for (int rank = 0; rank < grid.size(); ++rank)
            ASSERT_TRUE(plan_transfer(from, to, rank) == plan_transfer(from.owned(), to.owned(), rank, grid))
                << from.print() << " to " << to.print() << " on \"" << text << '"';
    }
  }
}

}  // namespace
}  // namespace partita::transfer_test
