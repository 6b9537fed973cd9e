// Gradient sums that travel while a rank computes.
#include "strategies/cost/sums_under_way.hpp"
#include "partita/base/philox.hpp"
#include "partita/strategies/cost/estimate.hpp"
#include "test/strategies/cost/priced.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace partita::test::sums_under_way_test {
namespace {

/// What a rank does: it starts a sum, or it computes.
struct Act {
  double sum = 0, overlap = 0, compute = 0;
};

/// Follows computing and sums in short intervals of time. Returns the seconds until both are done.
double stepped(const std::vector<Act>& acts) {
  constexpr double tick = 1e-4;
  std::vector<Act> sums;  // under way
  std::size_t first = 0;
  double seconds = 0;
  for (Act act : acts) {
    if (act.sum > 0) sums.push_back(act);
    while (act.compute > tick / 2) {
      const bool travels = first < sums.size();
      act.compute -= tick * (travels ? sums[first].overlap : 1);
      if (travels && (sums[first].sum -= tick) <= tick / 2) ++first;
      seconds += tick;
    }
  }
  for (; first < sums.size(); ++first) seconds += sums[first].sum;
  return seconds;
}

TEST(SumsUnderWay, HideBehindWhatIsStillComputed) {
  SumsUnderWay sums;
  sums.compute(5);  // nothing travels yet
  EXPECT_EQ(sums.hidden(), 0);
  sums.start(4, 0.5);
  sums.compute(1);  // takes 2 seconds, half of the sum
  EXPECT_EQ(sums.hidden(), 1);
  sums.start(3, 1);
  sums.compute(1.5);  // 1 while the rest of the first sum travels, 0.5 during the second one
  EXPECT_EQ(sums.hidden(), 2.5);
  EXPECT_EQ(sums.exposed(), 4.5);
  sums.start(2, 0);
  sums.compute(100);  // hides what is left of the second sum, and nothing of the third
  EXPECT_EQ(sums.hidden(), 5);
  EXPECT_EQ(sums.exposed(), 4);
}

TEST(SumsUnderWay, TakeTheTimeThatAClockShows) {
  for (Index seed = 0; seed < 100; ++seed) {
    const Random random(static_cast<std::uint64_t>(seed), 1);
    std::vector<Act> acts;
    SumsUnderWay sums;
    double computing = 0;
    for (Index i = 0; i < 12; ++i) {
      Act act{random.uniform(3 * i) < 0.5 ? 0.2 * random.uniform(3 * i) : 0,
              std::floor(5 * random.uniform(3 * i + 1)) / 4, 0.1 * random.uniform(3 * i + 2)};
      sums.start(act.sum, act.overlap);
      sums.compute(act.compute);
      computing += act.compute;
      acts.push_back(act);
    }
    EXPECT_NEAR(computing + sums.exposed(), stepped(acts), 5e-3) << seed;
  }
}

// However fast or slow a machine computes, a step takes at least its sums and at least its computing, and at most both.
TEST(SumsUnderWay, ThePriceLiesBetweenAllAndNothingHidden) {
  const Plan plan = bound(two_convolutions(), all_as("data=4", "N@data"), 8);
  for (const double speed : {1e-3, 1., 1e3, 1e6}) {
    double before = 0;
    for (const double overlap : {1., 0.75, 0.5, 0.25, 0.}) {
      Machine machine = round_machine(overlap);
      machine.arithmetic.value *= speed;
      const Cost cost = estimate(plan, machine);
      double sums = 0;
      for (const LayerCost& layer : cost.layers) sums += layer.grad_reduce;
      const double compute = cost.parts.passes.compute;
      EXPECT_LE(cost.parts.hidden, compute * (1 + 1e-12));
      EXPECT_GE(cost.seconds, std::max(sums, compute));
      EXPECT_GE(cost.seconds, before) << "less overlap";
      before = cost.seconds;
      expect_seconds(cost.parts.grad_reduce + cost.parts.hidden, sums);
    }
  }
}

}  // namespace
}  // namespace partita::test::sums_under_way_test
