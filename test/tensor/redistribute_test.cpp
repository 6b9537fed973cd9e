#include "partita/tensor/redistribute.hpp"

#include "partita/base/error.hpp"
#include "partita/comm/counting.hpp"
#include "src/comm/threads/threads.hpp"
#include "test/support/adjoint.hpp"
#include "test/support/grids.hpp"

#include <gtest/gtest.h>

#include <random>

namespace partita::test::redistribute_test {

namespace {

/// Shapes with prime extents, with extents below the number of shards, and without elements.
const std::vector<Shape> shapes{{{'N', 5}, {'C', 7}, {'H', 3}}, {{'N', 2}, {'C', 1}}, {{'N', 0}, {'C', 4}}};

DistTensor make(const Layout& layout, int rank, std::uint64_t seed) {
  DistTensor x(layout, rank, DType::f64, std::make_shared<Allocator>(), MemoryClass::workspace);
  fill_parts(x, seed, rank);
  return x;
}

/// The layouts that the gradient of a value with this layout may have. Where the value is partial, the gradient is
/// replicated. Where the value is replicated, the gradient is replicated or partial.
std::vector<Layout> duals(const Layout& layout) {
  std::vector<Layout> duals{layout.dual()};
  if (layout.replicated() != 0) duals.push_back(layout.with_partial(layout.replicated()));
  return duals;
}

std::map<Verb, Traffic> by_verb(const TrafficCounter& counter) {
  std::map<Verb, Traffic> counts;
  for (const auto& [key, traffic] : counter.by_label()) counts[key.second] += traffic;
  return counts;
}

std::map<Verb, Traffic> foretold(const std::vector<RedistributionStep>& steps, int rank) {
  std::map<Verb, Traffic> counts;
  for (const auto& step : steps)
    if (const auto t = traffic(step, rank, 8); t.messages > 0) counts[step.verb] += t;
  return counts;
}

/// Checks redistributions over one grid, on one rank. All methods are collective.
class Checker {
 public:
  Checker(const Grid& grid, Communicator& comm)
      : counter_(std::make_shared<TrafficCounter>()), grid_(grid, counting(comm, counter_), all_axis_sets(grid)) {}

  void check(const Layout& from, const Layout& to) {
    const auto what = fmt::format("rank {}: {} -> {} by {}", grid_.rank(), from.print(), to.print(),
                                  print(plan_redistribution(from, to)));
    const auto x = make(from, grid_.rank(), 1);
    const auto steps = plan_redistribution(from, to);
    counter_->reset();
    const auto moved = redistribute(x, to, grid_);
    EXPECT_EQ(by_verb(*counter_), foretold(steps, grid_.rank())) << what;
    EXPECT_EQ(moved.layout, to) << what;
    EXPECT_EQ(moved.local.box(), to.owned(grid_.rank())) << what;
    EXPECT_EQ(wrong_elements(moved, 1, grid_.along(to.partial()), grid_.world()), 0) << what;
    EXPECT_EQ(wrong_elements(x, 1, grid_.along(from.partial()), grid_.world()), 0) << what << ": changed its operand";
    check_adjoints(x, moved, what);
  }

 private:
  void check_adjoints(const DistTensor& x, const DistTensor& moved, const std::string& what) {
    for (const auto& y_layout : duals(moved.layout))
      for (const auto& back : duals(x.layout)) {
        const auto y = make(y_layout, grid_.rank(), 2);
        const auto returned = redistribute(y, back, grid_);
        EXPECT_EQ(inner(moved, y, grid_.world()), inner(x, returned, grid_.world()))
            << what << ", adjoint to " << back.print();
      }
  }

  std::shared_ptr<TrafficCounter> counter_;
  ProcessGrid grid_;
};

}  // namespace

TEST(Redistribute, EveryPairOfLayoutsUpToSixRanks) {
  for (const auto& grid : grids()) {
    if (grid.size() > 6) continue;
    run_threads(grid.size(), [&](Communicator& comm) {
      Checker checker(grid, comm);
      for (const auto& shape : shapes)
        for (const auto& from : all_layouts(shape, grid))
          for (const auto& to : all_layouts(shape, grid)) checker.check(from, to);
    });
    ASSERT_FALSE(HasFailure()) << "on the grid " << grid.print();
  }
}

TEST(Redistribute, RandomPairsOnSevenAndEightRanks) {
  for (const char* text : {"x=7", "z=2 y=2 x=2", "y=2 x=4"}) {
    const auto grid = Grid::parse(text);
    run_threads(grid.size(), [&](Communicator& comm) {
      Checker checker(grid, comm);
      std::mt19937 random(11);  // the same on every rank
      for (const auto& shape : shapes) {
        const auto layouts = all_layouts(shape, grid);
        std::uniform_int_distribution<std::size_t> draw(0, layouts.size() - 1);
        for (int i = 0; i < 60; ++i) {
          const auto& from = layouts[draw(random)];
          checker.check(from, layouts[draw(random)]);
        }
      }
    });
    ASSERT_FALSE(HasFailure()) << "on the grid " << grid.print();
  }
}

TEST(Redistribute, EachConversionOfTheVocabularyIsTaken) {
  const Shape shape{{'N', 5}, {'C', 3}};
  const auto grid = Grid::parse("y=2 x=3");
  const auto steps = [&](const char* from, const char* to) {
    return print(plan_redistribution(Layout::parse(from, shape, grid), Layout::parse(to, shape, grid)));
  };
  EXPECT_EQ(steps("sum@x", ""), "all_reduce(x)");
  EXPECT_EQ(steps("sum@(y,x)", "N@(x,y)"), "reduce_scatter(y,x)");
  EXPECT_EQ(steps("N@(x,y)", "N@x"), "all_gather(y)");
  EXPECT_EQ(steps("N@(x,y)", "N@(y,x)"), "exchange");
  EXPECT_EQ(steps("N@x C@y", "N@y C@x"), "exchange");
  EXPECT_EQ(steps("", "N@x"), "slice");
  EXPECT_EQ(steps("", "sum@x"), "slice");
  EXPECT_EQ(steps("N@x", "N@x"), "");
}

TEST(Redistribute, ToTheSameLayoutIsTheSameTensor) {
  run_threads(1, [](Communicator& comm) {
    const ProcessGrid grid(Grid(), comm, {});
    const auto x = make(Layout(shapes[0], grid.grid()), 0, 1);
    EXPECT_EQ(redistribute(x, x.layout, grid).local.data(), x.local.data());
  });
}

}  // namespace partita::test::redistribute_test
