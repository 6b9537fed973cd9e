#include "partita/layouts/picture.hpp"

#include "partita/base/error.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace partita::picture_test {
namespace {

TEST(Picture, DrawsBlocksAndTheirRanks) {
  const auto layout = Layout::parse("H@y W@x", Shape{{'N', 2}, {'H', 5}, {'W', 4}}, Grid::parse("y=2 x=2"));
  EXPECT_EQ(picture(layout, 'H', 'W'),
            "        W  [0,2)  [2,4)\n"
            "H [0,3)      0      1\n"
            "H [3,5)      2      3\n");
}

TEST(Picture, ListsReplicasTogether) {
  const auto layout = Layout::parse("H@y", Shape{{'H', 4}, {'W', 3}}, Grid::parse("data=2 y=2"));
  EXPECT_NE(picture(layout, 'H', 'W').find("0,2"), std::string::npos);
  EXPECT_NE(picture(layout, 'H', 'W').find("1,3"), std::string::npos);
}

TEST(Picture, NamesTheRanksOfALaterStage) {
  const auto layout = Layout::parse("H@y W@x", Shape{{'N', 2}, {'H', 5}, {'W', 4}}, Grid::parse("y=2 x=2", 3));
  EXPECT_EQ(picture(layout, 'H', 'W'),
            "        W  [0,2)  [2,4)\n"
            "H [0,3)      3      4\n"
            "H [3,5)      5      6\n");
}

TEST(Picture, HasALineABlockOfRows) {
  const auto layout = Layout::parse("H@(y,x)", Shape{{'H', 10}, {'W', 3}}, Grid::parse("y=2 x=2"));
  const auto text = picture(layout, 'H', 'W');
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5);
}

TEST(Picture, RefusesADimensionThatTheShapeLacks) {
  EXPECT_THROW(picture(Layout(Shape{{'H', 4}}, Grid()), 'H', 'W'), Error);
  EXPECT_THROW(picture(Layout(Shape{{'H', 4}}, Grid()), 'W', 'H'), Error);
}

}  // namespace
}  // namespace partita::picture_test
