#include "partita/layouts/layout.hpp"

#include "partita/base/error.hpp"
#include "test/support/grids.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace partita::layout_test {
namespace {

using test::all_layouts;

TEST(BalancedBlock, CutsEverythingOnceRemaindersToLowBlocks) {
  for (Index lo = 0; lo < 3; ++lo)
    for (Index extent = 0; extent <= 9; ++extent)
      for (int parts = 1; parts <= 5; ++parts) {
        Index next = lo, last_size = extent;
        for (int i = 0; i < parts; ++i) {
          const auto block = balanced_block({lo, lo + extent}, parts, i);
          EXPECT_EQ(block.lo, next);
          EXPECT_LE(block.extent(), last_size);
          EXPECT_TRUE(block.extent() == extent / parts || block.extent() == extent / parts + 1);
          next = block.hi;
          last_size = block.extent();
        }
        EXPECT_EQ(next, lo + extent);
      }
}

TEST(Layout, CutsInNestedBalancedBlocks) {
  // H: |0 1 2|3 4|5 6 7|8 9|, as drawn in layout.hpp
  const auto layout = Layout::parse("H@(y,x)", Shape{{'H', 10}}, Grid::parse("y=2 x=2"));
  const std::vector<Interval> expected{{0, 3}, {3, 5}, {5, 8}, {8, 10}};
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(layout.owned(rank)[0], expected[rank]);
}

TEST(Layout, TheOrderOfAxesDecidesWhoOwnsWhat) {
  const auto layout = Layout::parse("H@(x,y)", Shape{{'H', 5}}, Grid::parse("y=2 x=3"));
  // Cut over x: 0 1 | 2 3 | 4. Then each block is cut over y: 0|1, 2|3, 4|-.
  const std::vector<Interval> expected{{0, 1}, {2, 3}, {4, 5}, {1, 2}, {3, 4}, {5, 5}};
  for (int rank = 0; rank < 6; ++rank) EXPECT_EQ(layout.owned(rank)[0], expected[rank]);
}

/// Counts how many ranks own each element.
std::map<std::pair<Index, Index>, int> owners(const Layout& layout) {
  std::map<std::pair<Index, Index>, int> count;
  for (const auto& box : layout.owned())
    for (Index i = box[0].lo; i < box[0].hi; ++i)
      for (Index j = box[1].lo; j < box[1].hi; ++j) ++count[{i, j}];
  return count;
}

TEST(Layout, OwnedBoxesCoverTheShapeOnceForEveryReplica) {
  for (const auto* grid : {"", "a=1", "a=3", "a=2 b=3", "a=2 b=1 c=2", "a=2 b=3 c=2"})
    for (const auto& shape : {Shape{{'N', 7}, {'H', 5}}, Shape{{'N', 1}, {'H', 2}}, Shape{{'N', 0}, {'H', 3}}})
      for (const auto& layout : all_layouts(shape, Grid::parse(grid))) {
        const int copies = layout.grid().group_size(layout.replicated() | layout.partial());
        const auto count = owners(layout);
        EXPECT_EQ(static_cast<Index>(count.size()), shape.volume()) << layout.print();
        for (const auto& [element, ranks] : count) EXPECT_EQ(ranks, copies) << layout.print();
      }
}

TEST(Layout, OwnedBoxesAreEqualOrDisjointAndInsideTheShape) {
  const Shape shape{{'N', 3}, {'H', 5}};
  for (const auto& layout : all_layouts(shape, Grid::parse("a=2 b=2 c=2")))
    for (const auto& a : layout.owned()) {
      EXPECT_TRUE(Box(shape).contains(a));
      for (const auto& b : layout.owned()) EXPECT_TRUE(a == b || intersect(a, b).empty()) << layout.print();
    }
}

TEST(Layout, HoldersAreTheRanksWhoseBoxesHaveSomeElement) {
  std::mt19937_64 random(7);
  for (const Grid& grid : test::grids())
    for (const Shape& shape : {Shape{{'N', 5}, {'C', 3}}, Shape{{'N', 1}, {'C', 13}}, Shape{{'N', 0}, {'C', 4}}})
      for (const Layout& layout : test::all_layouts(shape, grid)) {
        Box box(2);
        for (int d = 0; d < 2; ++d) {
          const Index lo = static_cast<Index>(random() % 8), extent = static_cast<Index>(random() % 6);
          box[d] = {lo, lo + extent};
        }
        const int rank = static_cast<int>(random() % static_cast<std::uint64_t>(grid.size()));
        const auto axes = static_cast<AxisSet>(random()) & grid.all();
        std::vector<Transfer> expected;
        for (const int each : grid.group(rank, axes))
          if (const Box part = intersect(layout.owned(each), box); !part.empty()) expected.push_back({each, part});
        EXPECT_TRUE(layout.holders(box, rank, axes) == expected)
            << layout.print() << " on " << grid.print() << ", box " << box.print() << ", rank " << rank;
      }
}

TEST(Layout, EveryAxisShardsOrSumsOrReplicates) {
  for (const auto& layout : all_layouts(Shape{{'N', 3}, {'C', 2}}, Grid::parse("a=2 b=2"))) {
    EXPECT_EQ(layout.sharding() | layout.partial() | layout.replicated(), layout.grid().all());
    EXPECT_EQ(layout.sharding() & layout.partial(), 0U);
    EXPECT_EQ((layout.sharding() | layout.partial()) & layout.replicated(), 0U);
    EXPECT_EQ(layout.sharding('N') | layout.sharding('C'), layout.sharding());
    EXPECT_EQ(layout.sharding('H'), 0U);
  }
}

TEST(Layout, TheDualOfASumIsReplicated) {
  const auto layout = Layout::parse("N@a C sum@b", Shape{{'N', 3}, {'C', 2}}, Grid::parse("a=2 b=2"));
  EXPECT_EQ(layout.dual().print(), "N@a C");
  EXPECT_EQ(layout.dual().replicated(), AxisSet{0b10});
}

TEST(Layout, OntoKeepsTheDimensionsThatTheOtherShapeHas) {
  const auto grid = Grid::parse("a=2 b=2 c=2");
  const auto layout = Layout::parse("N@a H@(c,b)", Shape{{'N', 3}, {'C', 2}, {'H', 9}}, grid);
  EXPECT_EQ(layout.onto(Shape{{'H', 4}, {'W', 5}, {'N', 1}}).print(), "H@(c,b) W N@a");
  EXPECT_EQ(layout.onto(Shape{{'C', 4}}).print(), "C");
  EXPECT_EQ(Layout::parse("C@b sum@a", Shape{{'C', 2}}, grid).onto(Shape{{'F', 3}}).print(), "F sum@a");
}

TEST(Layout, AnAxisIsUsedOnce) {
  const auto layout = Layout::parse("N@a C sum@b", Shape{{'N', 3}, {'C', 2}}, Grid::parse("a=2 b=2"));
  EXPECT_THROW(layout.with(1, {0}), Error);
  EXPECT_THROW(layout.with(1, {1}), Error);
  EXPECT_THROW(layout.with_partial(1), Error);
  EXPECT_EQ(layout.with(0, {}).with(1, {0}).print(), "N C@a sum@b");
  EXPECT_EQ(layout.with(0, {0}), layout);
}

}  // namespace
}  // namespace partita::layout_test
