// When a training must end so that it is saved in time. Times are given, so nothing waits.
#include "src/cli/verbs/train/time_limit.hpp"

#include "src/cli/options/option_values.hpp"
#include "test/support/error_of.hpp"

#include <gtest/gtest.h>

namespace partita::cli::time_limit_test {
namespace {

using std::chrono::seconds;

TEST(TimeLimit, LeavesTimeForAStepAndASave) {
  const TimeLimit::Clock::time_point begin{};
  TimeLimit limit(100, begin);
  const auto ends = [&](int second) { return limit.ends_after_step(begin + seconds(second)); };
  EXPECT_FALSE(ends(40)) << "what came before the first step is no step";
  EXPECT_FALSE(ends(50));
  EXPECT_FALSE(ends(60));
  EXPECT_FALSE(ends(75)) << "a validation came between";
  EXPECT_FALSE(ends(84));
  EXPECT_TRUE(ends(86)) << "another one would end at 101";
}

TEST(TimeLimit, CountsTheLongestSave) {
  const TimeLimit::Clock::time_point begin{};
  TimeLimit limit(100, begin);
  const auto ends = [&](int second) { return limit.ends_after_step(begin + seconds(second)); };
  EXPECT_FALSE(ends(1));
  limit.save_took(seconds(20));
  limit.save_took(seconds(10));
  for (int second = 2; second < 80; ++second) EXPECT_FALSE(ends(second)) << second;
  EXPECT_TRUE(ends(80));
}

TEST(TimeLimit, MayBeVeryLong) {
  TimeLimit limit(1e300);
  EXPECT_FALSE(limit.ends_after_step(TimeLimit::Clock::now()));
}

TEST(TimeLimit, IsReadWithItsUnits) {
  const auto read = [](const char* text) { return parse_time("--time-limit", text); };
  EXPECT_EQ(read("23h50m"), 23 * 3600 + 50 * 60);
  EXPECT_EQ(read("1d2h3m4s"), 86400 + 2 * 3600 + 3 * 60 + 4);
  EXPECT_EQ(read("1.5h"), 5400);
  EXPECT_EQ(read("90m"), 5400);
  EXPECT_EQ(read("20"), 20);
  EXPECT_EQ(read("0.5s"), 0.5);
  for (const char* text : {"", "0", "h", "5x", "-5m", "5m3h", "5m5m", "5m20", "nan", "inf", "1e5", "5 m", "m5"})
    test::expect_error([&] { read(text); }, {"--time-limit", "write a time above 0, as 23h50m"});
}

}  // namespace
}  // namespace partita::cli::time_limit_test
