#include "partita/layouts/redistribution.hpp"

#include "partita/layouts/transfer.hpp"
#include "test/support/grids.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace partita::redistribution_test {
namespace {

using Point = std::pair<Index, Index>;
using Local = std::map<Point, Index>;  // what one rank holds
using State = std::vector<Local>;      // what all ranks hold

std::vector<Point> points(const Box& box) {
  std::vector<Point> all;
  for (Index i = box[0].lo; i < box[0].hi; ++i)
    for (Index j = box[1].lo; j < box[1].hi; ++j) all.emplace_back(i, j);
  return all;
}

/// The value of an element of the global tensor.
Index value(Point p) { return 100 + 10 * p.first + p.second; }

/// Returns a state that has the layout: along partial axes the ranks' contributions differ and add up to the value.
State fill(const Layout& layout) {
  const auto& grid = layout.grid();
  State state(static_cast<std::size_t>(grid.size()));
  for (int rank = 0; rank < grid.size(); ++rank) {
    const auto group = grid.group(rank, layout.partial());
    const auto place = std::find(group.begin(), group.end(), rank) - group.begin();
    const auto ranks = static_cast<Index>(group.size());
    const auto share = [&](Point p) {
      return place > 0 ? place + p.second : value(p) - (ranks - 1) * p.second - ranks * (ranks - 1) / 2;
    };
    for (const auto& p : points(layout.owned(rank))) state[rank][p] = share(p);
  }
  return state;
}

/// Returns the sum of element p over the group of `rank` along `axes`.
Index sum_over(const State& state, const Grid& grid, int rank, AxisSet axes, Point p) {
  Index sum = 0;
  for (const int other : grid.group(rank, axes)) {
    const auto& local = state[other];
    EXPECT_TRUE(local.contains(p)) << "a rank of the sum does not hold the element";
    if (local.contains(p)) sum += local.at(p);
  }
  return sum;
}

/// Returns element p from a rank of the group that holds it.
Index gathered(const State& state, const Grid& grid, int rank, AxisSet axes, Point p) {
  for (const int other : grid.group(rank, axes))
    if (const auto& local = state[other]; local.contains(p)) return local.at(p);
  ADD_FAILURE() << "no rank of the group holds the element";
  return 0;
}

/// Returns one rank's value after a local step: its own value, or zero on all but the first rank of an axis that
/// becomes partial.
Index sliced(const State& state, const RedistributionStep& step, int rank, Point p) {
  const AxisSet becomes = step.to.partial() & ~step.from.partial();
  const bool first = step.from.grid().group(rank, becomes)[0] == rank;
  const auto& local = state[rank];
  EXPECT_TRUE(local.contains(p)) << "the rank slices an element that it does not hold";
  return first && local.contains(p) ? local.at(p) : 0;
}

void check_received(const RedistributionStep& step, int rank) {
  Traffic planned;
  for (const auto& recv : plan_transfer(step.from, step.to, rank).recvs) planned += {1, recv.box.volume() * 4};
  EXPECT_EQ(received(step, rank, 4), planned) << step.from.print() << " to " << step.to.print();
}

/// Returns element p as an exchange delivers it.
Index exchanged(const State& state, const RedistributionStep& step, int rank, Point p) {
  const auto plan = plan_transfer(step.from.owned(), step.to.owned(), rank, step.from.grid());
  for (const auto& parts : {plan.recvs, plan.locals})
    for (const auto& [peer, box] : parts)
      for (const auto& q : points(box))
        if (p == q) return state[peer].at(p);
  ADD_FAILURE() << "the element does not arrive";
  return 0;
}

/// True if the new boxes of the group together are its old one, as a reduce-scatter leaves them.
bool scattered(const RedistributionStep& step, int rank) {
  Index volume = 0;
  for (const int other : step.from.grid().group(rank, step.axes)) volume += step.to.owned(other).volume();
  return volume == step.from.owned(rank).volume();
}

State run(const State& state, const RedistributionStep& step) {
  const auto& grid = step.from.grid();
  State after(state.size());
  for (int rank = 0; rank < grid.size(); ++rank) {
    EXPECT_TRUE(step.verb != Verb::reduce_scatter || scattered(step, rank));
    for (const auto& p : points(step.to.owned(rank))) {
      auto& element = after[rank][p];
      switch (step.verb) {
        case Verb::none: element = sliced(state, step, rank, p); break;
        case Verb::all_reduce:
        case Verb::reduce_scatter: element = sum_over(state, grid, rank, step.axes, p); break;
        case Verb::all_gather: element = gathered(state, grid, rank, step.axes, p); break;
        case Verb::exchange: element = exchanged(state, step, rank, p); break;
        default: ADD_FAILURE() << "not a step of a redistribution";
      }
    }
    if (step.verb == Verb::exchange) check_received(step, rank);
  }
  return after;
}

/// True if the ranks hold exactly their boxes, replicas agree, and pending sums add up to the value.
bool has_layout(const State& state, const Layout& layout) {
  const auto& grid = layout.grid();
  for (int rank = 0; rank < grid.size(); ++rank) {
    const auto& local = state[rank];
    if (static_cast<Index>(local.size()) != layout.owned(rank).volume()) return false;
    for (const int other : grid.group(rank, layout.replicated()))
      if (state[other] != local) return false;
    for (const auto& p : points(layout.owned(rank)))
      if (sum_over(state, grid, rank, layout.partial(), p) != value(p)) return false;
  }
  return true;
}

void check(const Layout& from, const Layout& to) {
  const auto steps = plan_redistribution(from, to);
  EXPECT_EQ(steps.empty(), from == to);
  State state = fill(from);
  ASSERT_TRUE(has_layout(state, from));
  Layout now = from;
  for (const auto& step : steps) {
    EXPECT_EQ(step.from, now);
    state = run(state, step);
    now = step.to;
    EXPECT_TRUE(has_layout(state, now)) << from.print() << " to " << to.print() << " by " << print(steps);
  }
  EXPECT_EQ(now, to);
}

TEST(Redistribution, TakesEveryLayoutToEveryOther) {
  for (const auto* grid : {"a=3", "a=2 b=2"})
    for (const auto& shape : {Shape{{'N', 5}, {'H', 3}}, Shape{{'N', 1}, {'H', 2}}, Shape{{'N', 0}, {'H', 2}}}) {
      const auto layouts = test::all_layouts(shape, Grid::parse(grid));
      for (const auto& from : layouts)
        for (const auto& to : layouts) check(from, to);
    }
}

TEST(Redistribution, TakesLayoutsOfThreeAxesToOthers) {
  const auto layouts = test::all_layouts(Shape{{'N', 5}, {'H', 3}}, Grid::parse("a=2 b=3 c=1"));
  for (std::size_t i = 0; i < layouts.size(); ++i)
    for (std::size_t j = i % 7; j < layouts.size(); j += 7) check(layouts[i], layouts[j]);
}

/// Returns the most elements that any rank lacks, over all ranks.
Index most_lacking(const Layout& have, const Layout& need) {
  Index most = 0;
  for (int rank = 0; rank < have.grid().size(); ++rank) {
    const Box box = need.owned(rank);
    most = std::max(most, box.volume() - intersect(have.owned(rank), box).volume());
  }
  return most;
}

bool begins_with(const AxisList& all, const AxisList& first) {
  return first.size() <= all.size() && std::equal(first.begin(), first.end(), all.begin());
}

/// True if no rank can lack more than the ranks at the corners. In the first case at most one dimension has unequal
/// blocks, and there one layout cuts further what the other one cuts, or they cut over different axes. In the second
/// case the blocks of every dimension become unions of blocks.
bool corners_lack_most(const Layout& have, const Layout& need) {
  int uneven = 0, coarser = 0;
  for (int d = 0; d < have.shape().dims(); ++d) {
    const AxisList &a = have.axes(d), &b = need.axes(d);
    coarser += begins_with(a, b) ? 1 : 0;
    if (have.shape().extent(d) % have.grid().group_size(have.sharding(d) | need.sharding(d)) == 0) continue;
    ++uneven;
    const bool apart = (have.sharding(d) & need.sharding(d)) == 0;
    if (!begins_with(a, b) && !begins_with(b, a) && !apart) return false;
  }
  return uneven <= 1 || coarser == have.shape().dims();
}

TEST(Redistribution, CornersLackMost) {
  Index exact = 0, bounded = 0;
  for (const auto* grid : {"a=3 b=2", "a=2 b=3", "a=4 b=2", "a=2 b=2 c=3"})
    for (const Index n : {1, 4, 6, 7, 12})
      for (const Index h : {3, 6, 8, 12}) {
        const auto layouts = test::all_layouts(Shape{{'N', n}, {'H', h}}, Grid::parse(grid));
        for (const auto& have : layouts)
          for (const auto& need : layouts) {
            const Index most = most_lacking(have, need), corners = most_missing(have, need);
            const std::string what = fmt::format("{}: {}x{}, {} to {}", grid, n, h, have.print(), need.print());
            EXPECT_LE(corners, most) << what;
            if (corners_lack_most(have, need)) {
              EXPECT_EQ(corners, most) << what;
              ++exact;
            } else if (std::min(n, h) >= have.grid().size()) {  // no block is empty
              EXPECT_GE(2 * corners, most) << what;
              ++bounded;
            }
          }
      }
  EXPECT_GT(exact, 10 * bounded);
  EXPECT_GT(bounded, 100);
}

TEST(Redistribution, UsesTheVocabulary) {
  const auto grid = Grid::parse("y=2 x=2");
  const Shape shape{{'N', 5}, {'H', 3}};
  const auto words = [&](const char* from, const char* to) {
    return print(plan_redistribution(Layout::parse(from, shape, grid), Layout::parse(to, shape, grid)));
  };
  EXPECT_EQ(words("N@y", "N@y"), "");
  EXPECT_EQ(words("sum@y", "N"), "all_reduce(y)");
  EXPECT_EQ(words("sum@y", "N@y"), "reduce_scatter(y)");
  EXPECT_EQ(words("N@x sum@y", "N@(x,y)"), "reduce_scatter(y)");
  EXPECT_EQ(words("sum@(y,x)", "N@(x,y)"), "reduce_scatter(y,x)");
  EXPECT_EQ(words("N@y", "N"), "all_gather(y)");
  EXPECT_EQ(words("N@(y,x)", "N"), "all_gather(y,x)");
  EXPECT_EQ(words("N@y", "H@y"), "exchange");
  EXPECT_EQ(words("N@(y,x)", "N@(x,y)"), "exchange");
  EXPECT_EQ(words("N", "N@x"), "slice");
  EXPECT_EQ(words("N", "sum@y"), "slice");
  EXPECT_EQ(words("sum@y", "N@y H@x"), "all_reduce(y) slice");
  EXPECT_EQ(words("sum@y", "N@x"), "all_reduce(y) slice");
  EXPECT_EQ(words("sum@(y,x)", "N@y H@x"), "all_reduce(y,x) slice");
}

TEST(Redistribution, TrafficFollowsTheRules) {
  const auto grid = Grid::parse("y=2 x=2");
  const Shape shape{{'N', 5}, {'H', 3}};
  const auto moved = [&](const char* from, const char* to, int rank) {
    Traffic sum;
    for (const auto& step : plan_redistribution(Layout::parse(from, shape, grid), Layout::parse(to, shape, grid)))
      sum += traffic(step, rank, 4);
    return sum;
  };
  EXPECT_EQ(moved("sum@y", "N", 3), (Traffic{1, 4 * 15}));
  EXPECT_EQ(moved("N@x sum@y", "N@x", 3), (Traffic{1, 4 * 2 * 3}));
  EXPECT_EQ(moved("sum@y", "N@y", 3), (Traffic{1, 4 * 15}));
  EXPECT_EQ(moved("N@y", "N", 3), (Traffic{1, 4 * 15}));
  EXPECT_EQ(moved("N", "N@y", 0), Traffic{});
  EXPECT_EQ(moved("N@y", "H@y", 0), (Traffic{1, 4 * 3 * 1}));
  EXPECT_EQ(moved("N@y", "H@y", 2), (Traffic{1, 4 * 2 * 2}));
}

TEST(Redistribution, NothingIsCountedWhereNothingMoves) {
  const auto grid = Grid::parse("y=1 x=2");
  const auto steps = [&](const Shape& shape, const char* from, const char* to) {
    return plan_redistribution(Layout::parse(from, shape, grid), Layout::parse(to, shape, grid));
  };
  for (const auto& step : steps(Shape{{'N', 5}, {'H', 3}}, "sum@y", "N")) EXPECT_EQ(traffic(step, 1, 8), Traffic{});
  for (const auto& step : steps(Shape{{'N', 0}, {'H', 3}}, "sum@x", "N")) EXPECT_EQ(traffic(step, 1, 8), Traffic{});
  for (const auto& step : steps(Shape{{'N', 1}, {'H', 1}}, "N@x", "H@x")) EXPECT_EQ(traffic(step, 0, 8), Traffic{});
}

}  // namespace
}  // namespace partita::redistribution_test
