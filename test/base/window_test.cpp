#include "partita/base/window.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace partita::window_test {
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

/// Expects the smallest intervals that hold all pairs of an output and an input that a tap joins.
void expect_contact(const Window& window, Interval outputs, Interval inputs) {
  Hull out, in;
  for (Index o = outputs.lo; o < outputs.hi; ++o)
    for (const Index i : reads(window, o))
      if (i >= inputs.lo && i < inputs.hi) out.add(o), in.add(i);
  const auto contact = window.contact(outputs, inputs);
  const auto text = [&] {
    return fmt::format("{}: outputs {}..{}, inputs {}..{}", window.print(), outputs.lo, outputs.hi, inputs.lo,
                       inputs.hi);
  };
  ASSERT_EQ(contact.outputs, out.side) << text();
  ASSERT_EQ(contact.inputs, in.side) << text();
  ASSERT_EQ(window.inputs_of(outputs, inputs), in.side) << text();
  ASSERT_EQ(window.outputs_of(inputs, outputs), out.side) << text();
}

/// Calls visit({lo, hi}) for all intervals inside [0, n), the empty ones too.
template <class F>
void for_intervals(Index n, F&& visit) {
  for (Index lo = 0; lo <= n; ++lo)
    for (Index hi = lo; hi <= n; ++hi) visit(Interval{lo, hi});
}

TEST(Window, ContactIsWhatTapsJoin) {
  for_windows([](const Window& window) {
    for (const Index n : {1, 2, 5})
      for_intervals(window.outputs(n), [&](Interval outputs) {
        for_intervals(n, [&](Interval inputs) { expect_contact(window, outputs, inputs); });
      });
    const Index n = 13;
    for_intervals(window.outputs(n), [&](Interval outputs) { expect_contact(window, outputs, {0, n}); });
    for_intervals(n, [&](Interval inputs) { expect_contact(window, {0, window.outputs(n)}, inputs); });
  });
}

// The tap of one output is 10^9 places from the next; only one can hit.
TEST(Window, ContactOfHugeWindowsTakesNoTime) {
  const Window window{.kernel = 2'000'000'000, .stride = 3, .dilation = 1'000'000'000, .pad_lo = 1'999'999'998};
  const auto contact = window.contact({0, 40}, {0, 7});
  EXPECT_EQ(contact.outputs, (Interval{0, 2}));  // output 0 hits input 2 with tap 2, output 1 hits input 5
  EXPECT_EQ(contact.inputs, (Interval{2, 6}));
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

TEST(Window, BoxesTakeCommonSamplesAndAllChannels) {
  const std::vector<Window> windows{{.kernel = 3, .pad_lo = 1, .pad_hi = 1}, {.kernel = 2, .stride = 2}};
  const Shape x{{'N', 4}, {'C', 3}, {'H', 7}, {'W', 9}}, y{{'N', 4}, {'C', 8}, {'H', 7}, {'W', 4}};
  Box part(y);
  part[0] = {1, 3};
  part[1] = {2, 5};
  part[2] = {3, 5};
  part[3] = {1, 2};
  EXPECT_EQ(inputs_of(windows, part, Box(x)).print(), "[1,3)x[0,3)x[2,6)x[2,4)");
  Box in(x);
  in[0] = {1, 3};
  in[2] = {0, 1};
  in[3] = {8, 9};  // no window reads the last column
  EXPECT_EQ(outputs_of(windows, in, Box(y)).print(), "[1,3)x[0,8)x[0,2)x[0,0)");
  EXPECT_TRUE(outputs_of(windows, in, Box(y)).empty());
}

TEST(Window, AnEmptyBoxNeedsNothing) {
  const std::vector<Window> windows{{.kernel = 3, .pad_lo = 1, .pad_hi = 1}};
  const Shape x{{'N', 4}, {'C', 3}, {'H', 7}};
  Box nothing(x);
  nothing[0] = {2, 2};
  EXPECT_TRUE(inputs_of(windows, nothing, Box(x)).empty());
  EXPECT_TRUE(outputs_of(windows, nothing, Box(x)).empty());
  nothing[0] = {0, 4};
  nothing[2] = {7, 7};
  EXPECT_TRUE(inputs_of(windows, nothing, Box(x)).empty());
  EXPECT_TRUE(outputs_of(windows, nothing, Box(x)).empty());
}

}  // namespace
}  // namespace partita::window_test
