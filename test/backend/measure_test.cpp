#include "src/backend/measure.hpp"

#include "src/backend/cpu/reference.hpp"

#include <gtest/gtest.h>

#include <map>

namespace partita::measure_test {
namespace {

/// Has the algorithms "a" and "b", which take the given seconds of a clock of its own. In the first two runs of "b"
/// other processes also have the core for `lost` seconds.
class Ways : public ReferenceBackend {
 public:
  Ways(double a, double b, double lost) : seconds_{{"a", a}, {"b", b}}, lost_(lost) {}

  std::vector<std::string_view> algorithms(const ConvProblem&) const override {
    return seconds_.contains("slow") ? std::vector<std::string_view>{"a", "b", "slow"}
                                     : std::vector<std::string_view>{"a", "b"};
  }
  void choose(const ConvProblem&, std::string_view algorithm) override { way_ = algorithm; }
  void conv_forward(std::span<const Window>, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                    Stream) override {
    const int run = ++runs[way_];
    last_ = {way_ == "b" && run == 3 && lucky > 0 ? lucky : seconds_[way_], way_ == "b" && run <= 2 ? lost_ : 0};
    last_.seconds += last_.lost;
  }

  /// Measures the problem by this clock.
  std::string_view fastest(const ConvProblem& problem) { return measure_fastest(*this, {}, problem, timer()); }
  RunTimer timer() {
    return [this](const std::function<void()>& run) {
      run();
      return last_;
    };
  }

  /// Adds a third algorithm, "slow".
  void add_slow(double seconds) { seconds_["slow"] = seconds; }

  std::map<std::string_view, int> runs;
  double lucky = 0;  ///< seconds of the third run of "b"; 0 means the same as its other runs

 private:
  std::map<std::string_view, double> seconds_;
  double lost_;
  Timing last_;  // of the last run
  std::string_view way_;
};

ConvProblem small(Index batch = 1) {
  const std::vector<Window> windows(1);
  return {ConvPass::forward,
          windows,
          Box(Shape{{'N', batch}, {'C', 1}, {'W', 2}}),
          Box(Shape{{'F', 1}, {'C', 1}, {'W', 1}}),
          Box(Shape{{'N', batch}, {'F', 1}, {'W', 2}}),
          false};
}

TEST(MeasureFastest, ARunThatTheHostInterruptedDoesNotDecide) {
  Ways ways(0.04, 0.01, 0.08);
  EXPECT_EQ(ways.fastest(small()), "b");
}

TEST(TimeAlgorithm, IsTheMedianOfOneAlgorithm) {
  Ways ways(0.04, 0.01, 0.08);
  EXPECT_NEAR(time_algorithm(ways, {}, small(), "a", ways.timer()), 0.04, 1e-12);
  EXPECT_NEAR(time_algorithm(ways, {}, small(), "b", ways.timer()), 0.01, 1e-12);
}

TEST(MeasureFastest, OneLuckyRunDoesNotDecide) {
  Ways ways(0.01, 0.013, 0);
  ways.lucky = 0.001;
  EXPECT_EQ(ways.fastest(small()), "a");
}

TEST(MeasureFastest, WhatCannotWinIsGivenUpAfterOneRunAndOneBefore) {
  Ways ways(0.01, 0.2, 0);
  EXPECT_EQ(ways.fastest(small()), "a");
  EXPECT_EQ(ways.runs["b"], 2);
}

TEST(MeasureFastest, WhatMayWinRunsInTurnsMoreOftenTheLessItTakes) {
  Ways slow(0.6, 0.7, 0), fast(0.01, 0.008, 0);
  fast.add_slow(0.2);
  EXPECT_EQ(slow.fastest(small()), "a");
  EXPECT_EQ(slow.runs["a"], 3);
  EXPECT_EQ(slow.runs["b"], 3);
  EXPECT_EQ(fast.fastest(small()), "b");
  EXPECT_GE(fast.runs["a"], 4);
  EXPECT_EQ(fast.runs["b"], fast.runs["a"]);
  EXPECT_EQ(fast.runs["slow"], 2);
}

TEST(MeasureFastest, TheClockTimesARun) {
  const Timing timing = time_by_clock([] {
    for (const double start = now(); now() - start < 0.01;) {
    }
  });
  EXPECT_GE(timing.seconds, 0.01);
  EXPECT_LE(timing.lost, timing.seconds);
}

TEST(HalvesFirst, HalvesComeBeforeWhatIsHalved) {
  class Halving : public ReferenceBackend {
    std::vector<std::string_view> algorithms(const ConvProblem& problem) const override {
      return problem.batch > 2 ? std::vector<std::string_view>{"a", two_halves} : std::vector<std::string_view>{"a"};
    }
  };
  const auto batches = [](std::vector<ConvProblem> problems) {
    std::vector<std::vector<Index>> groups;
    for (const auto& group : halves_first(Halving(), problems)) {
      groups.emplace_back();
      for (const ConvProblem& problem : group) groups.back().push_back(problem.batch);
    }
    return groups;
  };
  using Groups = std::vector<std::vector<Index>>;
  EXPECT_EQ(batches({small(7)}), (Groups{{2, 1}, {4, 3}, {7}}));
  EXPECT_EQ(batches({small(4), small(8), small(1), small(2)}), (Groups{{2, 1}, {4}, {8}}));
  EXPECT_EQ(batches({}), Groups());
}

TEST(MeasureFastest, TheBackendsOwnGuessWinsUnlessItIsBeaten) {
  Ways ways(0.001, 0.001, 0);
  EXPECT_EQ(ways.fastest(small()), "a");
}

}  // namespace
}  // namespace partita::measure_test
