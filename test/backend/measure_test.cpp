#include "partita/backend/measure.hpp"

#include "../../src/backend/reference.hpp"
#include "partita/base/clock.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <thread>

namespace partita {
namespace {

/// Works for so many seconds in its ways "a" and "b", and in "b" at first sleeps besides, as if the core had gone to others.
class Ways : public ReferenceBackend {
 public:
  Ways(double a, double b, double asleep) : seconds_{{"a", a}, {"b", b}}, asleep_(asleep) {}

  std::vector<std::string_view> algorithms(const ConvProblem&) const override { return {"a", "b"}; }
  void choose(const ConvProblem&, std::string_view algorithm) override { way_ = algorithm; }
  void conv_forward(std::span<const Window>, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                    Stream) override {
    const int run = ++runs[way_];
    for (const double start = now(); now() - start < seconds_[way_];) {
    }
    if (way_ == "b" && run <= 2) std::this_thread::sleep_for(std::chrono::duration<double>(asleep_));
  }

  std::map<std::string_view, int> runs;

 private:
  std::map<std::string_view, double> seconds_;
  double asleep_;
  std::string_view way_;
};

ConvProblem small() {
  const std::vector<Window> windows(1);
  return {ConvPass::forward,
          windows,
          Box(Shape{{'N', 1}, {'C', 1}, {'W', 2}}),
          Box(Shape{{'F', 1}, {'C', 1}, {'W', 1}}),
          Box(Shape{{'N', 1}, {'F', 1}, {'W', 2}}),
          false};
}

TEST(MeasureFastest, ARunThatTheHostInterruptedDoesNotDecide) {
  Ways ways(0.04, 0.01, 0.08);
  EXPECT_EQ(measure_fastest(ways, small()), "b");
}

TEST(MeasureFastest, WhatCannotWinIsGivenUp) {
  Ways ways(0.01, 0.2, 0);
  EXPECT_EQ(measure_fastest(ways, small()), "a");
  EXPECT_GE(ways.runs["a"], 4);
  EXPECT_EQ(ways.runs["b"], 2);
}

TEST(MeasureFastest, WhatTakesLongRunsTwiceAndOnceBefore) {
  Ways ways(0.6, 0, 0);
  EXPECT_EQ(measure_fastest(ways, small()), "b");
  EXPECT_EQ(ways.runs["a"], 3);
}

TEST(MeasureFastest, TheBackendsOwnGuessWinsUnlessItIsBeaten) {
  Ways ways(0.001, 0.001, 0);
  EXPECT_EQ(measure_fastest(ways, small()), "a");
}

}  // namespace
}  // namespace partita
