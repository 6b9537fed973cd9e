#include "src/comm/job/watchdog.hpp"

#include "src/comm/backoff.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace partita::test::watchdog_test {
namespace {

using std::chrono::milliseconds;

/// Waits until the counter has the value. The limit is no measurement: it ends a test that hangs.
bool reaches(const std::atomic<int>& counter, int value) {
  for (int i = 0; i < 10'000 && counter < value; ++i) std::this_thread::sleep_for(milliseconds(1));
  return counter >= value;
}

TEST(Watchdog, ActsOnceInEachLongWait) {
  Waits waits;
  std::atomic<int> acted = 0;
  const Watchdog watchdog(waits, milliseconds(40), [&] { ++acted; });
  for (int wait = 1; wait <= 2; ++wait) {
    const Waits::Scope waiting(waits);
    EXPECT_TRUE(reaches(acted, wait));
    std::this_thread::sleep_for(milliseconds(100));
    EXPECT_EQ(acted, wait) << "it acted twice in one wait";
  }
  for (int i = 0; i < 50; ++i) {  // many short waits are not a long one
    const Waits::Scope waiting(waits);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(acted, 2);
}

TEST(Watchdog, AskingIsAboutThePresentWait) {
  Waits waits;
  {
    const Waits::Scope waiting(waits);
    waits.ask();
    EXPECT_TRUE(waits.asked());
    EXPECT_FALSE(waits.asked()) << "it is asked once";
    waits.ask();
  }
  const Waits::Scope next(waits);
  EXPECT_FALSE(waits.asked());
}

TEST(Periodic, ActsAgainAndAgain) {
  std::atomic<int> acted = 0;
  const Periodic periodic(milliseconds(1), [&] { ++acted; });
  EXPECT_TRUE(reaches(acted, 3));
}

/// Two hours of checks at 3 ns each are more than an int counts.
TEST(Backoff, ChecksAreNotCountedBeyondTheirLimit) {
  Checks checks(10);
  for (int i = 1; i < 10; ++i) EXPECT_FALSE(checks.many()) << i;
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(checks.many());
  constexpr int largest = std::numeric_limits<int>::max();
  static_assert([] {  // an overflow would not compile
    Checks late(largest, largest);
    return late.many() && late.many();
  }());
}

}  // namespace
}  // namespace partita::test::watchdog_test
