// Which outputs can be computed before halos have come, against the definition of a window, output by output.
#include "partita/layouts/interior.hpp"

#include "test/support/cases.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace partita::test::interior_test {

namespace {

/// A box of one sample and one channel over H, or over H and W.
Box box_of(const std::vector<Interval>& sides) {
  Box box(2 + static_cast<int>(sides.size()));
  box[0] = box[1] = {0, 1};
  for (std::size_t d = 0; d < sides.size(); ++d) box[2 + static_cast<int>(d)] = sides[d];
  return box;
}

std::string text(Interval interval) { return fmt::format("[{},{})", interval.lo, interval.hi); }

/// The input that tap k of output o reads.
Index tap(const Window& window, Index o, Index k) { return o * window.stride - window.pad_lo + k * window.dilation; }

bool holds(Interval interval, Index i) { return i >= interval.lo && i < interval.hi; }

/// True if the output reads nothing of `needed` outside `own`.
bool reads_own_inputs(const Window& window, Index o, Interval own, Interval needed) {
  for (Index k = 0; k < window.kernel; ++k)
    if (const Index i = tap(window, o, k); holds(needed, i) && !holds(own, i)) return false;
  return true;
}

Interval interior_of_side(const Window& window, Interval own, Interval needed, Interval y) {
  return interior_of(std::vector{window}, box_of({own}), box_of({needed}), box_of({y}))[2];
}

/// One dimension of a layer that is cut: what a rank owns of x and y, and what it needs of x.
struct Side {
  Window window;
  Interval own, needed, y;
  std::string print() const {
    return fmt::format("window {}, own {}, needed {}, y {}", window.print(), text(own), text(needed), text(y));
  }
};

}  // namespace

TEST(Interior, OfOneDimension) {
  const Window point{}, three{.kernel = 3, .pad_lo = 1, .pad_hi = 1},
      four{.kernel = 4, .stride = 2, .pad_lo = 1, .pad_hi = 1},
      dilated{.kernel = 3, .dilation = 2, .pad_lo = 2, .pad_hi = 2};
  struct Case {
    std::string name;
    Window window;
    Interval own, needed, y, inside;
  };
  const std::vector<Case> table{{"no output", three, {0, 3}, {0, 3}, {2, 2}, {2, 2}},
                                {"no input of its own", three, {4, 4}, {3, 5}, {4, 4}, {4, 4}},
                                {"all inputs", three, {0, 7}, {0, 7}, {0, 7}, {0, 7}},
                                {"no halo", point, {2, 5}, {2, 5}, {2, 5}, {2, 5}},
                                {"the first of three ranks", three, {0, 4}, {0, 5}, {0, 4}, {0, 3}},
                                {"one in the middle", three, {4, 7}, {3, 8}, {4, 7}, {5, 6}},
                                {"the last", three, {7, 10}, {6, 10}, {7, 10}, {8, 10}},
                                {"one row between two halos", three, {4, 5}, {3, 6}, {4, 5}, {4, 4}},
                                {"stride 2", four, {0, 6}, {0, 7}, {0, 3}, {0, 2}},
                                {"stride 2, the second half", four, {6, 11}, {5, 11}, {3, 5}, {4, 5}},
                                {"dilated", dilated, {5, 10}, {3, 12}, {5, 10}, {7, 8}},
                                {"inputs of others alone", point, {0, 2}, {0, 5}, {3, 5}, {3, 3}}};
  for (const auto& [name, window, own, needed, y, inside] : table)
    EXPECT_EQ(text(interior_of_side(window, own, needed, y)), text(inside)) << name;
}

// H, 3 inputs of which 2 are its own, 6 of padding below: outputs 0 reads own inputs, 1 and 2 a neighbor's, 3 to 7
// padding alone.
TEST(Interior, TakesTheLongestRun) {
  const Window window{.kernel = 2, .pad_lo = 0, .pad_hi = 6};
  EXPECT_EQ(text(interior_of_side(window, {0, 2}, {0, 3}, {0, 8})), "[3,8)");
  EXPECT_EQ(text(interior_of_side(window, {0, 2}, {0, 3}, {0, 4})), "[0,1)") << "of equal runs the first";
}

TEST(Interior, IsABoxOverAllDimensions) {
  const std::vector<Window> windows{{.kernel = 3, .pad_lo = 1, .pad_hi = 1}, {.kernel = 5, .pad_lo = 2, .pad_hi = 2}};
  Box own = box_of({{4, 8}, {0, 7}}), needed = box_of({{3, 9}, {0, 9}}), y = own;
  own[0] = needed[0] = y[0] = {3, 5};
  own[1] = needed[1] = {0, 6};
  y[1] = {2, 4};
  const Box inside = interior_of(windows, own, needed, y);
  EXPECT_EQ(inside.print(), "[3,5)x[2,4)x[5,7)x[0,5)") << "samples and channels stay as they are";
}

TEST(Interior, AgreesWithTheWindowsDefinition) {
  int with_interior = 0;
  for (std::uint64_t seed = 0; seed < cases(4000); ++seed) {
    std::mt19937_64 random(seed);
    const auto between = [&](Index lo, Index hi) {
      return lo + static_cast<Index>(random() % static_cast<std::uint64_t>(hi - lo + 1));
    };
    const Index n = between(1, 23);
    Side side{{.kernel = between(1, 5),
               .stride = between(1, 3),
               .dilation = between(1, 2),
               .pad_lo = between(0, 6),
               .pad_hi = between(0, 6)},
              {},
              {},
              {}};
    const Index outputs = side.window.outputs(n);
    side.own.lo = between(0, n);
    side.own.hi = between(side.own.lo, n);
    side.y.lo = between(0, outputs);
    side.y.hi = between(side.y.lo, outputs);
    side.needed = side.window.inputs_of(side.y, {0, n});
    if (!side.own.empty())
      side.needed = side.needed.empty()
                        ? side.own
                        : Interval{std::min(side.needed.lo, side.own.lo), std::max(side.needed.hi, side.own.hi)};
    const Interval inside = interior_of_side(side.window, side.own, side.needed, side.y);
    ASSERT_TRUE(inside.empty() || (inside.lo >= side.y.lo && inside.hi <= side.y.hi)) << side.print();
    Index longest = 0, run = 0;
    for (Index o = side.y.lo; o < side.y.hi; ++o) {
      const bool own = reads_own_inputs(side.window, o, side.own, side.needed);
      if (holds(inside, o)) {
        EXPECT_TRUE(own) << side.print() << ": output " << o;
      }
      run = own ? run + 1 : 0;
      longest = std::max(longest, run);
    }
    EXPECT_EQ(inside.extent(), longest) << side.print();
    with_interior += inside.empty() ? 0 : 1;
    if (HasFailure()) return;
  }
  EXPECT_GT(with_interior, static_cast<int>(cases(500)));
}

TEST(Interior, IsWorthItWhereMostOutputsAreInside) {
  struct Case {
    std::string name;
    std::vector<Interval> inside, y;
    bool worth;
  };
  for (const auto& [name, inside, y, worth] :
       {Case{"no output", {{3, 3}}, {{3, 3}}, false}, Case{"nothing inside", {{0, 0}}, {{0, 4}}, false},
        Case{"less than half", {{1, 2}}, {{0, 3}}, false}, Case{"half", {{1, 3}}, {{0, 4}}, false},
        Case{"more than half", {{1, 4}}, {{0, 5}}, true},
        Case{"everything: nothing to wait for", {{0, 5}}, {{0, 5}}, false},
        Case{"two dimensions", {{1, 7}, {1, 7}}, {{0, 8}, {0, 8}}, true},
        Case{"two thin dimensions", {{1, 4}, {1, 4}}, {{0, 5}, {0, 5}}, false}})
    EXPECT_EQ(worth_overlap(box_of(inside), box_of(y)), worth) << name;
}

TEST(Interior, BordersAreWhatReadsTheHalo) {
  const std::vector<Window> windows{{.kernel = 3, .pad_lo = 1, .pad_hi = 1}, {.kernel = 5, .pad_lo = 2, .pad_hi = 2}};
  Box own = box_of({{4, 14}, {0, 20}}), needed = box_of({{3, 15}, {0, 22}}), y = own;
  own[0] = needed[0] = y[0] = {3, 5};
  own[1] = needed[1] = {0, 6};
  y[1] = {2, 4};
  std::vector<std::string> borders;
  for (const auto& [outputs, inputs] : recomputed_borders(windows, own, needed, y))
    borders.push_back(outputs.print() + " reads " + inputs.print());
  EXPECT_EQ(borders, (std::vector<std::string>{"[3,5)x[2,4)x[4,5)x[0,20) reads [3,5)x[0,6)x[3,6)x[0,22)",
                                               "[3,5)x[2,4)x[13,14)x[0,20) reads [3,5)x[0,6)x[12,15)x[0,22)",
                                               "[3,5)x[2,4)x[5,13)x[18,20) reads [3,5)x[0,6)x[4,14)x[16,22)"}));
  EXPECT_TRUE(recomputed_borders(windows, needed, needed, y).empty()) << "nothing to wait for";
  own[2] = y[2] = {4, 6};
  EXPECT_TRUE(recomputed_borders(windows, own, needed, y).empty()) << "all rows read a halo";
}

}  // namespace partita::test::interior_test
