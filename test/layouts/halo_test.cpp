#include "partita/layouts/halo.hpp"
#include "partita/base/error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace partita {
namespace {

constexpr Index channels = 2;
const std::vector<std::string> placements{"",        "N@a",     "H@a",     "W@b",    "N@a H@b",
                                          "H@(a,b)", "H@(b,a)", "H@a W@b", "C@a H@b"};

Shape shape_of(Index n, Index h, Index w) { return Shape{{'N', n}, {'C', channels}, {'H', h}, {'W', w}}; }

/// Returns the rows of [0, n) that the outputs `out` read, by the definition of a window.
std::set<Index> reads(const Window& window, Interval out, Index n) {
  std::set<Index> inputs;
  for (Index o = out.lo; o < out.hi; ++o)
    for (Index k = 0; k < window.kernel; ++k)
      if (const Index i = o * window.stride - window.pad_lo + k * window.dilation; i >= 0 && i < n) inputs.insert(i);
  return inputs;
}

/// Returns the smallest interval that holds all of `values`.
Interval hull(const std::set<Index>& values) {
  return values.empty() ? Interval{} : Interval{*values.begin(), *values.rbegin() + 1};
}

struct Case {
  Layout x, y;
  std::vector<Window> windows;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto grid = Grid::parse("a=2 b=3");
  for (const auto& window :
       {Window{}, Window{3, 1, 1, 1, 1}, Window{2, 2, 1, 0, 0}, Window{5, 2, 1, 2, 1}, Window{3, 3, 2, 0, 4},
        Window{4, 1, 2, 5, 0}, Window{1, 3, 1, 1, 2}, Window{2, 2, 1, 1, 0}, Window{3, 1, 1, 0, 2}})
    for (const Index h : {1, 2, 7, 12, 13}) {
      const std::vector<Window> windows{window, {3, 1, 1, 1, 1}};
      if (windows[0].outputs(h) < 1) continue;
      for (const auto& placement : placements) {
        const auto x = Layout::parse(placement, shape_of(3, h, 5), grid);
        all.push_back({x, x.onto(shape_of(3, windows[0].outputs(h), windows[1].outputs(5))), windows});
      }
    }
  return all;
}

TEST(Halo, NeedsOneWindowForEachSpatialDimension) {
  const auto x = Layout::parse("H@b", shape_of(3, 12, 5), Grid::parse("a=2 b=3"));
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{max_dims + 1}}) {
    const std::vector<Window> windows(count);
    EXPECT_THROW(halo_of_inputs(x, x, windows), Error) << count;
    EXPECT_THROW(halo_of_outputs(x, x, windows), Error) << count;
  }
}

TEST(Halo, IsAlongNoAxisWhereWindowsStayInTheirBlocks) {
  const auto grid = Grid::parse("a=2 b=3");
  const auto axes_of = [&](const char* placement, Index h, const Window& window) {
    const std::vector<Window> windows{window, Window{}};
    const auto x = Layout::parse(placement, shape_of(3, h, 5), grid);
    return halo_of_inputs(x, x.onto(shape_of(3, windows[0].outputs(h), 5)), windows).axes();
  };
  const Window halves{.kernel = 2, .stride = 2};
  EXPECT_EQ(axes_of("H@b", 12, halves), 0U);
  EXPECT_EQ(axes_of("H@a W@b", 12, Window{}), 0U);
  EXPECT_NE(axes_of("H@b", 14, halves), 0U) << "blocks of 5, 5 and 4 elements begin in the middle of windows";
  EXPECT_NE(axes_of("H@b", 13, halves), 0U) << "no window covers the last element";
  EXPECT_NE(axes_of("H@b", 12, Window{.kernel = 2, .stride = 2, .pad_lo = 1}), 0U);
  EXPECT_NE(axes_of("H@b", 12, Window{.kernel = 3, .pad_hi = 2}), 0U);
}

TEST(Halo, OfInputsIsWhatTheOwnOutputsRead) {
  for (const auto& [x, y, windows] : cases()) {
    const auto halo = halo_of_inputs(x, y, windows);
    for (int rank = 0; rank < 6; ++rank) {
      const Box needed = halo.needed(rank);
      const Box out = y.owned(rank);
      EXPECT_EQ(halo.owned(rank), x.owned(rank));
      if (out.empty()) {
        EXPECT_TRUE(needed.empty());
        continue;
      }
      EXPECT_EQ(needed[0], out[0]);
      EXPECT_EQ(needed[1], x.owned(rank)[1]);
      EXPECT_EQ(needed[2], hull(reads(windows[0], out[2], x.shape()['H']))) << windows[0].print();
      EXPECT_EQ(needed[3], hull(reads(windows[1], out[3], x.shape()['W'])));
    }
  }
}

TEST(Halo, OfOutputsHoldsEveryReaderOfTheOwnInputs) {
  for (const auto& [x, y, windows] : cases()) {
    const auto halo = halo_of_outputs(x, y, windows);
    for (int rank = 0; rank < 6; ++rank) {
      const Box needed = halo.needed(rank);
      const Box in = x.owned(rank);
      EXPECT_TRUE(!in.empty() || needed.empty());
      for (Index o = 0; o < y.shape()['H'] && !in.empty(); ++o) {
        const auto inputs = reads(windows[0], {o, o + 1}, x.shape()['H']);
        const bool touched =
            std::any_of(inputs.begin(), inputs.end(), [&](Index i) { return i >= in[2].lo && i < in[2].hi; });
        EXPECT_TRUE(!touched || (o >= needed[2].lo && o < needed[2].hi)) << windows[0].print() << " output " << o;
      }
    }
  }
}

TEST(Halo, OnlyRanksThatDifferAlongTheAxesOfSpaceMatter) {
  for (const auto& [x, y, windows] : cases())
    for (const auto& halo : {halo_of_inputs(x, y, windows), halo_of_outputs(x, y, windows)}) {
      std::vector<Box> owned, needed;
      for (int rank = 0; rank < 6; ++rank) {
        owned.push_back(halo.owned(rank));
        needed.push_back(halo.needed(rank));
      }
      for (int rank = 0; rank < 6; ++rank) {
        const auto some = halo.transfer(rank), all = plan_transfer(owned, needed, rank, halo.grid());
        ASSERT_EQ(some.sends, all.sends) << x.print() << ' ' << windows[0].print();
        ASSERT_EQ(some.recvs, all.recvs) << x.print() << ' ' << windows[0].print();
        ASSERT_EQ(some.locals, all.locals) << x.print() << ' ' << windows[0].print();
      }
    }
}

TEST(Halo, TrafficIsWhatTheTransferSends) {
  for (const auto& [x, y, windows] : cases()) {
    const auto halo = halo_of_inputs(x, y, windows);
    Index sent = 0, received = 0;
    for (int rank = 0; rank < 6; ++rank) {
      sent += halo.transfer(rank).traffic(8).bytes;
      for (const auto& recv : halo.transfer(rank).recvs) received += recv.box.volume() * 8;
      EXPECT_EQ(halo.transfer(rank).traffic(8).messages, static_cast<Index>(halo.transfer(rank).sends.size()));
    }
    EXPECT_EQ(sent, received);
    EXPECT_TRUE(!halo.none() || sent == 0);
  }
}

TEST(Halo, NoneWhereNoSpatialDimensionIsCut) {
  const auto grid = Grid::parse("a=2 b=3");
  const std::vector<Window> windows{{3, 1, 1, 1, 1}, {3, 1, 1, 1, 1}};
  const auto halo = [&](const char* text) {
    const auto x = Layout::parse(text, shape_of(5, 7, 6), grid);
    return halo_of_inputs(x, x, windows);
  };
  EXPECT_TRUE(halo("N@a").none());
  EXPECT_EQ(halo("N@a").widths(), "");
  EXPECT_FALSE(halo("N@a H@b").none());
  EXPECT_EQ(halo("N@a H@b").widths(), "H 1+1");
  EXPECT_EQ(halo("H@a W@b").widths(), "H 1+1 W 1+1");
}

TEST(Halo, DiagonalNeighborsAreIncluded) {
  const auto grid = Grid::parse("a=2 b=2");
  const auto x = Layout::parse("H@a W@b", shape_of(1, 4, 4), grid);
  const std::vector<Window> windows{{3, 1, 1, 1, 1}, {3, 1, 1, 1, 1}};
  const auto halo = halo_of_inputs(x, x, windows);
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(halo.transfer(rank).traffic(1), (Traffic{3, channels * (2 + 2 + 1)}));  // a row, a column and a corner
}

}  // namespace
}  // namespace partita
