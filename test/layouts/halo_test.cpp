#include "partita/layouts/halo.hpp"
#include "partita/base/error.hpp"
#include "test/support/cases.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace partita::halo_test {
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

/// Returns the outputs of [0, m) that read the rows `in`, by the definition of a window.
std::set<Index> readers(const Window& window, Interval in, Index m) {
  std::set<Index> outputs;
  for (Index o = 0; o < m; ++o)
    for (Index k = 0; k < window.kernel; ++k)
      if (const Index i = o * window.stride - window.pad_lo + k * window.dilation; i >= in.lo && i < in.hi)
        outputs.insert(o);
  return outputs;
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

TEST(Halo, OfOutputsIsWhatReadsTheOwnInputs) {
  for (const auto& [x, y, windows] : cases()) {
    const auto halo = halo_of_outputs(x, y, windows);
    for (int rank = 0; rank < 6; ++rank) {
      const Box needed = halo.needed(rank), in = x.owned(rank);
      EXPECT_EQ(halo.owned(rank), y.owned(rank));
      if (in.empty()) {
        EXPECT_TRUE(needed.empty());
        continue;
      }
      EXPECT_EQ(needed[0], in[0]);
      EXPECT_EQ(needed[1], y.owned(rank)[1]);
      EXPECT_EQ(needed[2], hull(readers(windows[0], in[2], y.shape()['H']))) << windows[0].print();
      EXPECT_EQ(needed[3], hull(readers(windows[1], in[3], y.shape()['W'])));
    }
  }
}

/// Expects the messages of a halo to be the rows that their receivers need, from the first one to the last one of each
/// sender. `needs` are the rows that each rank needs, its own ones too.
void expect_messages(const Halo& halo, const std::vector<std::set<Index>>& needs, const std::string& what) {
  const auto ranks = static_cast<int>(needs.size());
  std::vector<TransferPlan> plans;
  for (int rank = 0; rank < ranks; ++rank) plans.push_back(halo.transfer(rank));
  for (int to = 0; to < ranks; ++to) {
    const auto& needed = needs[to];
    ASSERT_EQ(halo.needed(to)[2], hull(needed)) << what << " of rank " << to;
    auto received = plans[to].recvs.begin();
    for (int from = 0; from < ranks; ++from) {
      if (from == to) continue;
      std::set<Index> rows;
      for (const Index row : needed)
        if (const Interval owned = halo.owned(from)[2]; row >= owned.lo && row < owned.hi) rows.insert(row);
      const auto& sends = plans[from].sends;
      const auto sent =
          std::find_if(sends.begin(), sends.end(), [to](const Transfer& send) { return send.peer == to; });
      ASSERT_EQ(sent != sends.end(), !rows.empty()) << what << " from " << from << " to " << to;
      if (rows.empty()) continue;
      ASSERT_EQ(sent->box[2], hull(rows)) << what << " from " << from << " to " << to;
      ASSERT_TRUE(received != plans[to].recvs.end()) << what;
      ASSERT_EQ(*received++, (Transfer{from, sent->box})) << what;
    }
    ASSERT_TRUE(received == plans[to].recvs.end()) << what;
  }
}

/// Checks both halos of a window between n inputs and m outputs, each cut over the ranks of `grid`.
void check_cut(const Window& window, Index n, Index m, const Grid& grid) {
  const std::vector<Window> windows{window};
  const auto x = Layout::parse("H@y", {{'N', 1}, {'C', 1}, {'H', n}}, grid);
  const auto y = Layout::parse("H@y", {{'N', 1}, {'C', 1}, {'H', m}}, grid);
  std::vector<std::set<Index>> inputs, outputs;
  for (int rank = 0; rank < grid.size(); ++rank) {
    inputs.push_back(reads(window, y.owned(rank)[2], n));
    outputs.push_back(readers(window, x.owned(rank)[2], m));
  }
  const auto text = fmt::format("{} from {} to {} over {}: ", window.print(), n, m, grid.size());
  expect_messages(halo_of_inputs(x, y, windows), inputs, text + "inputs");
  expect_messages(halo_of_outputs(x, y, windows), outputs, text + "outputs");
}

// Of convolutions, and of transposed ones, whose windows slide over their output.
TEST(Halo, IsExactForEveryWindow) {
  std::vector<Index> extents{1, 2, 5, 6, 7, 13, 29, 40};
  if (test::lengthy())
    for (extents.resize(40); Index & extent : extents) extent = &extent - extents.data() + 1;
  for (int ranks = 2; ranks <= 5; ranks += test::ranks_step(ranks)) {
    const auto grid = Grid::parse(fmt::format("y={}", ranks));
    for (Index kernel = 1; kernel <= 7; ++kernel)
      for (Index stride = 1; stride <= 4; ++stride)
        for (Index dilation = 1; dilation <= 4; ++dilation)
          for (const auto& [lo, hi] : {std::pair<Index, Index>{0, 0}, {1, 1}, {kernel - 1, 2}, {11, 3}})
            for (const Index n : extents) {
              const Window window{kernel, stride, dilation, lo, hi};
              if (window.outputs(n) > 0) check_cut(window, n, window.outputs(n), grid);
              const Index transposed = (n - 1) * stride - lo - hi + window.reach() + std::max(stride, dilation) - 1;
              if (transposed > 0) check_cut(window, transposed, n, grid);
              if (testing::Test::HasFatalFailure()) return;
            }
  }
}

// 4 rows a rank, and taps 8 rows apart: a rank takes nothing from its neighbors, and 4 rows from each rank beyond.
TEST(Halo, SkipsRanksBetweenTheTapsOfADilatedWindow) {
  const std::vector<Window> windows{{.kernel = 3, .dilation = 8, .pad_lo = 8, .pad_hi = 8}};
  const auto x = Layout::parse("H@y", {{'N', 1}, {'C', 1}, {'H', 32}}, Grid::parse("y=8"));
  for (const auto& halo : {halo_of_inputs(x, x, windows), halo_of_outputs(x, x, windows)}) {
    EXPECT_EQ(halo.transfer(3).recvs, (std::vector<Transfer>{{1, x.owned(1)}, {5, x.owned(5)}}));
    EXPECT_EQ(halo.transfer(3).traffic(1), (Traffic{2, 8}));
  }
}

TEST(Halo, OnlyRanksThatDifferAlongTheAxesOfSpaceMatter) {
  for (const auto& [x, y, windows] : cases())
    for (const bool inputs : {true, false}) {
      const auto halo = inputs ? halo_of_inputs(x, y, windows) : halo_of_outputs(x, y, windows);
      const Layout& consumer = inputs ? y : x;
      std::vector<Box> owned, needed;
      for (int rank = 0; rank < 6; ++rank) {
        owned.push_back(halo.owned(rank));
        needed.push_back(halo.needed(rank));
      }
      // Of what plan_transfer sends, the rows from the first to the last that the receiver needs.
      const auto trimmed = [&, reach = windows](std::vector<Transfer> messages, int receiver) {
        for (auto& [peer, box] : messages) {
          const Box own = consumer.owned(receiver < 0 ? peer : receiver);
          box = inputs ? inputs_of(reach, own, box) : outputs_of(reach, own, box);
        }
        std::erase_if(messages, [](const Transfer& message) { return message.box.empty(); });
        return messages;
      };
      for (int rank = 0; rank < 6; ++rank) {
        const auto some = halo.transfer(rank), all = plan_transfer(owned, needed, rank, halo.grid());
        ASSERT_EQ(some.sends, trimmed(all.sends, -1)) << x.print() << ' ' << windows[0].print();
        ASSERT_EQ(some.recvs, trimmed(all.recvs, rank)) << x.print() << ' ' << windows[0].print();
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
}  // namespace partita::halo_test
