#include "partita/base/grid.hpp"

#include "partita/base/error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace partita::grid_test {
namespace {

std::string message_of(const std::string& text) {
  try {
    Grid::parse(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Grid, ReadsNamesAndExtents) {
  const auto grid = Grid::parse("  data=2\ty=3 x=1 ", 5);
  EXPECT_EQ(grid.axes(), 3);
  EXPECT_EQ(grid.size(), 6);
  EXPECT_EQ(grid.first_rank(), 5);
  EXPECT_EQ(grid.name(1), "y");
  EXPECT_EQ(grid.extent(1), 3);
  EXPECT_EQ(grid.find("x"), 2);
  EXPECT_EQ(grid.find("z"), -1);
  EXPECT_EQ(grid.all(), 0b111U);
}

TEST(Grid, PrintIsTheInverseOfParse) {
  for (const auto* text : {"", "data=1", "data=2 y=2", "y=3 x=2 data=1", "_a1=7 b_=2"}) {
    EXPECT_EQ(Grid::parse(text).print(), text);
    EXPECT_EQ(Grid::parse(Grid::parse(text).print()), Grid::parse(text));
  }
  EXPECT_EQ(Grid(), Grid::parse(""));
  EXPECT_EQ(Grid().size(), 1);
}

TEST(Grid, EqualityLooksAtNamesExtentsAndPlace) {
  EXPECT_FALSE(Grid::parse("y=2 x=3") == Grid::parse("x=3 y=2"));
  EXPECT_FALSE(Grid::parse("y=2") == Grid::parse("y=3"));
  EXPECT_FALSE(Grid::parse("y=2") == Grid::parse("y=2", 1));
}

TEST(Grid, ErrorsNameTheColumn) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"data", "column 1: 'data' has no extent"},
      {"data=2 =3", "column 8: '' is not a valid axis name"},
      {"2y=2", "column 1: '2y' is not a valid axis name"},
      {"y=2 a-b=2", "column 5: 'a-b' is not a valid axis name"},
      {"y=0", "column 3: '0' is not an extent"},
      {"data=2 y=-1", "column 10: '-1' is not an extent"},
      {"data=2 y=2.5", "column 10: '2.5' is not an extent"},
      {"y=99999999999", "column 3: '99999999999' is not an extent"},
      {"y=", "column 3: '' is not an extent"},
      {"y=2 x=2 y=2", "column 9: axis 'y' is named twice"},
      {"sum=2", "column 1: 'sum' stands for a pending sum"},
      {"a=4096 b=4096 c=2", "column 15: a grid has at most"},
  };
  for (const auto& [text, why] : cases)
    EXPECT_NE(message_of(text).find(why), std::string::npos) << text << " gave: " << message_of(text);
}

TEST(Grid, RanksAreRowMajorWithTheLastAxisFastest) {
  const auto grid = Grid::parse("a=2 b=3 c=4");
  int rank = 0;
  for (int a = 0; a < 2; ++a)
    for (int b = 0; b < 3; ++b)
      for (int c = 0; c < 4; ++c, ++rank) {
        EXPECT_EQ(grid.coordinate(rank, 0), a);
        EXPECT_EQ(grid.coordinate(rank, 1), b);
        EXPECT_EQ(grid.coordinate(rank, 2), c);
      }
}

TEST(Grid, GroupsAreTheRanksThatDifferAlongTheAxesOnly) {
  const auto grid = Grid::parse("a=2 b=3 c=2");
  for (AxisSet axes = 0; axes <= grid.all(); ++axes)
    for (int rank = 0; rank < grid.size(); ++rank) {
      std::vector<int> expected;
      for (int other = 0; other < grid.size(); ++other) {
        bool same = true;
        for (int axis = 0; axis < grid.axes(); ++axis)
          same = same && ((axes >> axis & 1U) != 0 || grid.coordinate(rank, axis) == grid.coordinate(other, axis));
        if (same) expected.push_back(other);
      }
      EXPECT_EQ(grid.group(rank, axes), expected);
      EXPECT_EQ(static_cast<int>(expected.size()), grid.group_size(axes));
    }
}

TEST(Grid, DistanceCountsDifferingCoordinates) {
  const auto grid = Grid::parse("a=2 b=3 c=4");
  EXPECT_EQ(grid.distance(5, 5), 0);
  EXPECT_EQ(grid.distance(0, 1), 1);
  EXPECT_EQ(grid.distance(0, 12), 1);
  EXPECT_EQ(grid.distance(0, 23), 3);
}

TEST(Grid, PrintsAxisSetsInItsOwnOrder) {
  const auto grid = Grid::parse("data=2 y=2 x=2");
  EXPECT_EQ(grid.print(0), "()");
  EXPECT_EQ(grid.print(0b101), "(data,x)");
}

}  // namespace
}  // namespace partita::grid_test
