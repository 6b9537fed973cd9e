#include "src/cli/options/step_delay.hpp"

#include "partita/base/error.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace partita::cli {

namespace {

TEST(StepDelay, ReadsRanksAndTimes) {
  const StepDelay one = parse_delay("rank=3:20ms");
  EXPECT_EQ(one.rank, 3);
  EXPECT_DOUBLE_EQ(one.seconds, 0.020);
  const StepDelay random = parse_delay("random:500us");
  EXPECT_FALSE(random.rank);
  EXPECT_DOUBLE_EQ(random.seconds, 500e-6);
  EXPECT_DOUBLE_EQ(parse_delay("rank=0:1.5s").seconds, 1.5);
}

TEST(StepDelay, RefusesAnythingElse) {
  for (const char* text :
       {"", "20ms", "rank=3", "rank=:20ms", "rank=-1:20ms", "rank=1.5:20ms", "rank=1,20ms", "all:20ms", "random",
        "random:", "random:20", "random:-5ms", "random:0ms", "random:nanms", "random:5 ms", "random:2h", "random:1e9s"})
    EXPECT_THROW(parse_delay(text), Error) << text;
}

TEST(StepDelay, OneRankWaitsInEachStep) {
  const std::vector<StepDelay> delays{{3, 0.020}, {3, 0.001}, {1, 0.5}};
  EXPECT_DOUBLE_EQ(delay_seconds(delays, 1, 3, 0), 0.021);
  EXPECT_DOUBLE_EQ(delay_seconds(delays, 1, 3, 17), 0.021);
  EXPECT_EQ(delay_seconds(delays, 1, 0, 0), 0);
}

TEST(StepDelay, RandomDelaysDependOnSeedRankAndStepAlone) {
  const std::vector<StepDelay> delays{{std::nullopt, 0.004}}, two{{std::nullopt, 0.004}, {std::nullopt, 0.004}};
  double sum = 0;
  for (int rank = 0; rank < 20; ++rank)
    for (Index step = 0; step < 50; ++step) {
      const double seconds = delay_seconds(delays, 7, rank, step);
      EXPECT_EQ(seconds, delay_seconds(delays, 7, rank, step));
      EXPECT_GE(seconds, 0);
      EXPECT_LT(seconds, 0.004);
      EXPECT_NE(seconds, delay_seconds(delays, 8, rank, step));
      EXPECT_NE(seconds, delay_seconds(delays, 7, rank + 1, step));
      EXPECT_NE(seconds, delay_seconds(delays, 7, rank, step + 1));
      EXPECT_NE(2 * seconds, delay_seconds(two, 7, rank, step));  // a second one is drawn by itself
      sum += seconds;
    }
  EXPECT_NEAR(sum / 1000, 0.002, 0.0002);
}

}  // namespace

}  // namespace partita::cli
