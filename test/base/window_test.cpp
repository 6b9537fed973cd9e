#include "partita/base/window.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace partita {
namespace {

/// Every input that output o reads, including padding, computed from the definition.
std::vector<Index> reads(const Window& window, Index o) {
  std::vector<Index> inputs;
  for (Index k = 0; k < window.kernel; ++k) inputs.push_back(o * window.stride - window.pad_lo + k * window.dilation);
  return inputs;
}

/// Counts the outputs 0, 1, ... as long as the window lies inside the padded inputs.
Index count_outputs(const Window& window, Index n) {
  Index count = 0;
  while (reads(window, count).back() < n + window.pad_hi) ++count;
  return count;
}

/// The smallest interval that holds the points that were added.
struct Hull {
  Interval side{0, 0};
  void add(Index i) {
    side = side.empty() ? Interval{i, i + 1} : Interval{std::min(side.lo, i), std::max(side.hi, i + 1)};
  }
};

/// Returns true if the intervals are equal or both empty.
bool same(Interval a, Interval b) { return (a.empty() && b.empty()) || a == b; }

template <class F>
void for_windows(F&& check) {
  for (Index kernel = 1; kernel <= 7; ++kernel)
    for (Index stride = 1; stride <= 3; ++stride)
      for (Index dilation = 1; dilation <= 3; ++dilation)
        for (Index pad_lo = 0; pad_lo <= kernel + 1; pad_lo += 1 + kernel / 3)
          for (Index pad_hi = 0; pad_hi <= kernel + 1; pad_hi += 1 + kernel / 2)
            check(Window{kernel, stride, dilation, pad_lo, pad_hi});
}

constexpr Index extents[] = {1, 2, 5, 7, 13};

TEST(Window, OutputsAreCounted) {
  for_windows([](const Window& window) {
    for (Index n = 0; n <= 13; ++n)
      EXPECT_EQ(window.outputs(n), count_outputs(window, n)) << window.print() << " over " << n;
  });
}

TEST(Window, InputsOfAnIntervalOfOutputs) {
  for_windows([](const Window& window) {
    for (const Index n : extents)
      for (Index lo = 0, m = window.outputs(n); lo <= m; ++lo)
        for (Index hi = lo; hi <= m; ++hi) {
          Hull hull;
          for (Index o = lo; o < hi; ++o)
            for (const Index i : reads(window, o))
              if (i >= 0 && i < n) hull.add(i);
          ASSERT_TRUE(same(window.inputs_of({lo, hi}, n), hull.side))
              << window.print() << " over " << n << ": " << lo << ".." << hi;
        }
  });
}

TEST(Window, OutputsOfAnIntervalOfInputsHoldEveryReader) {
  for_windows([](const Window& window) {
    for (const Index n : extents)
      for (Index lo = 0, m = window.outputs(n); lo <= n; ++lo)
        for (Index hi = lo; hi <= n; ++hi) {
          Hull hull;
          for (Index o = 0; o < m; ++o)
            if (hi > lo && reads(window, o).front() < hi && reads(window, o).back() >= lo) hull.add(o);
          ASSERT_TRUE(same(window.outputs_of({lo, hi}, m), hull.side))
              << window.print() << " over " << n << ": " << lo << ".." << hi;
        }
  });
}

TEST(Window, ReadsSaysWhetherAnOutputSeesMoreThanPadding) {
  for_windows([](const Window& window) {
    for (const Index n : extents)
      for (Index o = 0; o < window.outputs(n); ++o) {
        const auto inputs = reads(window, o);
        EXPECT_EQ(window.reads(o, n),
                  std::any_of(inputs.begin(), inputs.end(), [&](Index i) { return i >= 0 && i < n; }));
      }
  });
}

TEST(Window, Prints) {
  EXPECT_EQ((Window{.kernel = 3}).print(), "3/1");
  EXPECT_EQ((Window{.kernel = 3, .stride = 2, .dilation = 2, .pad_lo = 1, .pad_hi = 0}).print(),
            "3/2 dilated 2 pad 1,0");
  EXPECT_EQ((Window{.kernel = 3, .pad_lo = 1, .pad_hi = 1}).print(), "3/1 pad 1");
}

TEST(Window, BoxesCopySamplesAndTakeAllChannels) {
  const std::vector<Window> windows{{.kernel = 3, .pad_lo = 1, .pad_hi = 1}, {.kernel = 2, .stride = 2}};
  const Shape x{{'N', 4}, {'C', 3}, {'H', 7}, {'W', 9}}, y{{'N', 4}, {'C', 8}, {'H', 7}, {'W', 4}};
  Box part(y);
  part[0] = {1, 3};
  part[1] = {2, 5};
  part[2] = {3, 5};
  part[3] = {1, 2};
  EXPECT_EQ(inputs_of(windows, part, x).print(), "[1,3)x[0,3)x[2,6)x[2,4)");
  Box in(x);
  in[0] = {1, 3};
  in[2] = {0, 1};
  in[3] = {8, 9};  // no window reads the last column
  EXPECT_EQ(outputs_of(windows, in, y).print(), "[1,3)x[0,8)x[0,2)x[4,4)");
  EXPECT_TRUE(outputs_of(windows, in, y).empty());
}

TEST(Window, AnEmptyBoxNeedsNothing) {
  const std::vector<Window> windows{{.kernel = 3, .pad_lo = 1, .pad_hi = 1}};
  const Shape x{{'N', 4}, {'C', 3}, {'H', 7}};
  Box nothing(x);
  nothing[0] = {2, 2};
  EXPECT_TRUE(inputs_of(windows, nothing, x).empty());
  EXPECT_TRUE(outputs_of(windows, nothing, x).empty());
  nothing[0] = {0, 4};
  nothing[2] = {7, 7};
  EXPECT_TRUE(inputs_of(windows, nothing, x).empty());
  EXPECT_TRUE(outputs_of(windows, nothing, x).empty());
}

}  // namespace
}  // namespace partita
