#include "src/system/clock.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace partita::clock_test {
namespace {

using Seconds = std::vector<double>;
using Numbers = std::vector<std::size_t>;

TEST(Stopwatch, CountsSleepAsLost) {
  const Stopwatch watch;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Timing timing = watch.time();
  EXPECT_GE(timing.seconds, 0.02);
  EXPECT_GE(timing.lost, 0.018);
  EXPECT_LE(timing.lost, timing.seconds);
}

TEST(Stopwatch, WorkOfOtherThreadsIsNotTheThreadsOwn) {
  std::atomic<bool> done = false;
  std::thread other([&] {
    while (!done) {
    }
  });
  const Stopwatch watch;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Timing timing = watch.time();
  done = true;
  other.join();
  EXPECT_GE(timing.lost, 0.018);
}

TEST(Stopwatch, WorkIsNotLost) {
  double most = 0;  // the best of many short intervals, since other programs may take the core in any of them
  for (int i = 0; i < 1000; ++i) {
    const Stopwatch watch;
    while (watch.time().seconds < 1e-4) {
    }
    const Timing timing = watch.time();
    most = std::max(most, timing.seconds - timing.lost);
  }
  EXPECT_GE(most, 0.9e-4);
}

TEST(Undisturbed, LeavesOutWhatLost) {
  const std::vector<Timing> timings{{1, 0}, {3, 2}, {1.1, 0.01}, {1.2, 0}, {1.5, 0.4}};
  EXPECT_EQ(undisturbed(timings), (Numbers{0, 2, 3}));
  EXPECT_EQ(undisturbed_seconds(timings), (Seconds{1, 1.1, 1.2}));
}

TEST(Undisturbed, KeepsTheQuarterThatLostLeastWhereAllDid) {
  EXPECT_EQ(undisturbed({{2, 0.2}, {2, 0.3}, {1.8, 0.1}, {2, 0.3}, {2, 0.4}, {2, 0.5}, {1.7, 0.05}, {2, 0.3}}),
            (Numbers{0, 2, 6}));
}

TEST(Undisturbed, LimitsCount) {
  EXPECT_EQ(undisturbed({{1, 0.01}, {1, 0.0101}}), Numbers{0});
  EXPECT_EQ(undisturbed({{1, 0.2}, {1, 0.2}, {1, 0.3}}), (Numbers{0, 1}));
  EXPECT_EQ(undisturbed({{1, 0.201}, {1, 0.3}}), (Numbers{0, 1}));
  EXPECT_EQ(undisturbed({{1, 0.04}, {1, 0.05}, {1, 0.03}, {1, 0.06}}),
            (Numbers{0, 2}));  // at the limit of the quarter and below
  EXPECT_EQ(undisturbed({{0, 0}}), Numbers{0});
}

TEST(Undisturbed, KeepsAllWhereCoresAreShared) {
  EXPECT_EQ(undisturbed({{2, 1}, {2.2, 1.1}, {2.1, 1}, {2, 0.9}}), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(undisturbed({{2, 1}}), Numbers{0});
  EXPECT_EQ(undisturbed({}), Numbers{});
}

}  // namespace
}  // namespace partita::clock_test
