// The verdict of `compare` on strategies whose times are given.
#include "src/cli/verbs/compare/verdict.hpp"

#include <gtest/gtest.h>

namespace partita::cli::verdict_test {
namespace {

/// A strategy with a predicted time and, if it is not 0, a measured one, in milliseconds.
Compared timed(const std::string& name, double predicted, double measured = 0, double spread = 0.01) {
  Compared one{.name = name, .plan = {}, .cost = {}, .held = {}};
  one.cost.seconds = predicted / 1e3;
  one.cost.parts.passes.compute = predicted / 1e3;
  if (measured > 0) one.measured = StepTimes{measured / 1e3, spread, 9, 0, {}};
  one.efficiency = 0.9;
  return one;
}

TEST(Verdict, CrownsWhatWasMeasuredFastest) {
  const std::vector<Compared> all{timed("a", 10, 12), timed("b", 11, 11.5), timed("c", 13, 15)};
  EXPECT_EQ(fastest(all).names, std::vector<std::string>{"b"});
  EXPECT_TRUE(fastest(all).measured);
  EXPECT_EQ(print_verdict(all),
            "b wins: measured 11.500 ms\n"
            "  a takes 4.3 % longer; predicted: 9.1 % shorter, so the prediction disagrees\n"
            "  c takes 30.4 % longer; predicted: 18.2 % longer\n");
}

TEST(Verdict, ComparesByPredictionWithoutMeasurements) {
  const std::vector<Compared> all{timed("a", 12), timed("b", 10), timed("c", 10.001)};
  EXPECT_EQ(fastest(all).names, (std::vector<std::string>{"b", "c"}));
  EXPECT_FALSE(fastest(all).measured);
  EXPECT_EQ(print_verdict(all), "b and c take the same time\n  a takes 20.0 % longer: compute +2.000 ms\n");
  EXPECT_TRUE(warnings(all).empty());
}

TEST(Verdict, NamesFasterStrategiesThatWereNotRun) {
  Compared unfit = timed("d", 1);
  unfit.held.missing = 5;
  const std::vector<Compared> all{timed("a", 10, 12), timed("b", 9), timed("c", 20), unfit};
  EXPECT_EQ(print_verdict(all),
            "a wins: measured 12.000 ms\n  b was not run; it is predicted to be faster: 9.000 ms\n");
}

TEST(Verdict, SaysWhenTheSpreadHidesTheDifference) {
  const std::vector<Compared> all{timed("a", 10, 12, 0.06), timed("b", 11, 12.5)};
  EXPECT_EQ(
      print_verdict(all),
      "a wins: measured 12.000 ms\n  b takes 4.2 % longer, which is within the spread; predicted: 10.0 % longer\n");
}

TEST(Verdict, WarnsOfSpreadsAndEfficiencies) {
  Compared good = timed("good", 10, 10, 0.1), odd = timed("odd", 10, 10, 0.12), predicted = timed("predicted", 10);
  good.efficiency = 1.05;
  odd.efficiency = predicted.efficiency = 1.12;
  const auto texts = warnings({good, odd, predicted});
  ASSERT_EQ(texts.size(), 3U);
  EXPECT_NE(texts[0].find("measured times of odd spread by 12.0 %"), std::string::npos) << texts[0];
  EXPECT_NE(texts[1].find("efficiency of odd is 112 %, above 105 %"), std::string::npos) << texts[1];
  EXPECT_NE(texts[2].find("predicted efficiency of predicted is 112 %, above 105 %"), std::string::npos) << texts[2];
}

TEST(Verdict, NeedsSomethingToCompare) {
  EXPECT_EQ(print_verdict({timed("a", 10, 12)}), "");
  Compared unfit = timed("d", 1);
  unfit.held.missing = 5;
  EXPECT_EQ(print_verdict({unfit, unfit}), "");
  EXPECT_TRUE(fastest({unfit}).names.empty());
}

}  // namespace
}  // namespace partita::cli::verdict_test
