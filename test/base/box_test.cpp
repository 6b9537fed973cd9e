#include "partita/base/box.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>

namespace partita::box_test {
namespace {

using Points = std::multiset<std::pair<Index, Index>>;

Box make_box(Interval a, Interval b) {
  Box box(2);
  box[0] = a;
  box[1] = b;
  return box;
}

Points points(const Box& box) {
  Points all;
  for (Index i = box[0].lo; i < box[0].hi; ++i)
    for (Index j = box[1].lo; j < box[1].hi; ++j) all.insert({i, j});
  return all;
}

/// Boxes of all kinds: empty ones, single elements, larger ones, and boxes that overlap on any side.
std::vector<Box> some_boxes() {
  std::mt19937 random(7);
  std::uniform_int_distribution<Index> low(-2, 4), extent(0, 5);
  const auto side = [&] {
    const Index lo = low(random);
    return Interval{lo, lo + extent(random)};
  };
  std::vector<Box> boxes;
  for (int i = 0; i < 60; ++i) boxes.push_back(make_box(side(), side()));
  return boxes;
}

TEST(Box, VolumeAndEmptinessCountElements) {
  for (const auto& box : some_boxes()) {
    EXPECT_EQ(box.volume(), static_cast<Index>(points(box).size()));
    EXPECT_EQ(box.empty(), points(box).empty());
  }
  EXPECT_EQ((Interval{3, 1}.extent()), 0);
  EXPECT_TRUE((Interval{3, 3}.empty()));
  EXPECT_EQ(Box().volume(), 1);  // a scalar
}

TEST(Box, IntersectionHoldsTheCommonElements) {
  for (const auto& a : some_boxes())
    for (const auto& b : some_boxes()) {
      Points expected;
      for (const auto& point : points(a))
        if (points(b).contains(point)) expected.insert(point);
      EXPECT_EQ(points(intersect(a, b)), expected) << a.print() << " and " << b.print();
      EXPECT_EQ(a.contains(b), expected.size() == points(b).size()) << a.print() << " and " << b.print();
    }
}

TEST(Box, SubtractionCutsIntoDisjointPartsOfWhatIsLeft) {
  for (const auto& whole : some_boxes())
    for (const auto& hole : some_boxes()) {
      const auto parts = subtract(whole, hole);
      EXPECT_LE(parts.size(), 4U);
      Points left, expected;
      for (const auto& part : parts) {
        EXPECT_FALSE(part.empty());
        left.merge(points(part));
      }
      for (const auto& point : points(whole))
        if (!points(hole).contains(point)) expected.insert(point);
      EXPECT_EQ(left, expected) << whole.print() << " without " << hole.print();
    }
}

TEST(Box, SubtractionGivesFacesOfTheFirstDimensionInFullWidth) {
  const auto parts = subtract(make_box({0, 5}, {0, 6}), make_box({1, 4}, {2, 5}));
  ASSERT_EQ(parts.size(), 4U);
  EXPECT_EQ(parts[0], make_box({0, 1}, {0, 6}));
  EXPECT_EQ(parts[1], make_box({4, 5}, {0, 6}));
  EXPECT_EQ(parts[2], make_box({1, 4}, {0, 2}));
  EXPECT_EQ(parts[3], make_box({1, 4}, {5, 6}));
}

TEST(Box, OfAShapeHoldsAllOfItAndPrints) {
  const Box box(Shape{{'N', 3}, {'H', 0}});
  EXPECT_EQ(box.print(), "[0,3)x[0,0)");
  EXPECT_TRUE(box.empty());
}

}  // namespace
}  // namespace partita::box_test
