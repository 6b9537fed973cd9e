// The second-best layout of a group of layers is the best of all others on small grids, and its price is that of the
// strategy in which the group has it.
#include "strategies/planner/layout_reasons.hpp"
#include "partita/base/error.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/cost/estimate.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "strategies/planner/strategy_kind.hpp"
#include "test/strategies/cost/priced.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace partita::test::layout_reasons_test {
namespace {

const Workload workload{.batch = 64, .optimizer = {}};

double seconds(const Model& model, const Strategy& strategy) {
  return estimate(bind(model, strategy, workload), dgx_h100()).seconds;
}

TEST(LayoutReasons, TheSecondBestIsTheBestOfTheOthers) {
  const Model model = builtin_model("alexnet", {.extent = 64});
  const Strategy strategy = all_as("c=8", "N@c");
  const auto reasons = layout_reasons(model, strategy, workload, dgx_h100());
  ASSERT_EQ(reasons.size(), 1U);
  EXPECT_EQ(reasons[0].layout, "N@c");
  EXPECT_EQ(reasons[0].layers.size(), model.layers().size());
  double least = std::numeric_limits<double>::infinity();
  std::string best;
  for (const char* layout : {"C@c", "H@c", "W@c", ""})
    if (const double one = seconds(model, all_as("c=8", layout)); one < least) {
      least = one;
      best = layout;
    }
  EXPECT_EQ(reasons[0].second, best);
  EXPECT_NEAR(reasons[0].cost.seconds, least, 1e-9 * least);
}

TEST(LayoutReasons, GroupsAreTheLayersOfOneLayout) {
  const Model model = builtin_model("alexnet", {.extent = 64});
  Strategy strategy = all_as("data=4 c=2", "N@(data,c)");
  strategy.layer("fc*", {.output = "N@data C@c"}).layer("fc7", {.algorithm = Algorithm::summa_c});
  const auto reasons = layout_reasons(model, strategy, workload, dgx_h100());
  ASSERT_EQ(reasons.size(), 2U);
  EXPECT_EQ(reasons[1].layers, (std::vector<std::string>{"fc6", "fc7", "fc8"}));
  EXPECT_EQ(reasons[0].layers.size() + 3, model.layers().size());
  for (const LayoutReason& reason : reasons) {
    ASSERT_NE(reason.second, "") << reason.layout;
    EXPECT_NEAR(reason.cost.seconds, seconds(model, reason.with), 1e-9 * reason.cost.seconds);
    const Plan plan = bind(model, reason.with, workload), before = bind(model, strategy, workload);
    for (std::size_t i = 0; i < plan.layers.size(); ++i) {
      const std::string& name = plan.layers[i].name;
      const bool in_group = std::count(reason.layers.begin(), reason.layers.end(), name) > 0;
      EXPECT_TRUE(in_group || plan.layers[i]->y == before.layers[i]->y) << name;
    }
  }
}

// What is recomputed by a pattern, and layers without a rule, are priced as well.
TEST(LayoutReasons, StrategiesWithPatternsOfOtherKeys) {
  const Model model = builtin_model("alexnet", {.extent = 64});
  Strategy strategy("data=4 c=2");
  strategy.layer("*", {.recompute = true}).layer("fc*", {.output = "N@data C@c", .algorithm = Algorithm::summa_c});
  const auto reasons = layout_reasons(model, strategy, workload, dgx_h100());
  ASSERT_EQ(reasons.size(), 2U);
  EXPECT_EQ(reasons[0].layout, "derived");
  for (const LayoutReason& reason : reasons) EXPECT_NE(reason.second, "") << reason.layout;
  EXPECT_TRUE(layout_reasons(model, Strategy(), workload, dgx_h100()).empty());
  Strategy wrong = strategy;
  EXPECT_THROW(layout_reasons(model, wrong.layer("fc9", {.output = "N"}), workload, dgx_h100()), Error);
}

// An axis of thousands of ranks stays on the samples.
TEST(LayoutReasons, NoneWhereNoAxisMayMove) {
  const auto reasons = layout_reasons(builtin_model("lenet5"), all_as("data=64", "N@data"), workload, dgx_h100());
  EXPECT_NE(reasons.at(0).second, "");
  const auto none = layout_reasons(builtin_model("lenet5"), all_as("data=128", "N@data"),
                                   {.batch = 128, .optimizer = {}}, dgx_h100());
  EXPECT_EQ(none.at(0).second, "");
}

TEST(StrategyKind, IsWhatTheStrategyCuts) {
  const auto cuts = [](const Strategy& strategy) { return kind_of(builtin_model("cosmoflow"), strategy).print(); };
  EXPECT_EQ(cuts(Strategy()), "nothing");
  EXPECT_EQ(cuts(all_as("data=2", "N@data")), "samples");
  EXPECT_EQ(cuts(all_as("data=2 y=1", "N@data H@y")), "samples") << "an axis of one rank cuts nothing";
  EXPECT_EQ(cuts(all_as("z=2 c=2", "D@z C@c")), "space, channels");
  EXPECT_EQ(cuts(all_as("c=2", "sum@c")), "channels");
  EXPECT_EQ(cuts(all_as("data=2", "N@data").stages(2)), "stages, samples");
}

}  // namespace
}  // namespace partita::test::layout_reasons_test
