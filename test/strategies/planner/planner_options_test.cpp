// What plan_strategies() tries: few microbatches, layouts around a layer that refuses some, and what its options ask.
#include "partita/strategies/planner/planner.hpp"

#include "partita/base/error.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/model/operator.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/planner/stage_partition.hpp"
#include "test/strategies/cost/priced.hpp"
#include "test/support/cases.hpp"
#include "test/support/error_of.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace partita::test::planner_options_test {
namespace {

double price(const Model& model, const Strategy& strategy, const Workload& workload, const Machine& machine) {
  const Strategy placed = place_stages_nearest(model, strategy, workload, machine, {}, 0);
  return estimate(bind(model, placed, workload), machine).seconds;
}

/// A layer that runs in one piece only.
struct Whole final : Operator {
  std::string_view kind() const override { return "whole"; }
  Shape output(std::span<const Shape> in) const override { return in[0]; }
  OperatorLayouts layouts(const LayoutRequest& request) const override {
    const Layout x = request.input[0].value_or(request.output).with_partial(0);
    if (x.sharding() != 0) fail("runs in one piece only");
    return {.x = {x}, .y = x, .dx = {x}};
  }
};

TEST(PlannerOptions, ALayerThatRefusesALayoutCostsThatLayerAlone) {
  Model m("m");
  auto t =
      m.conv("c1", m.input("image", {.channels = 3, .spatial = {8, 8}}), {.filters = 8, .kernel = 3, .padding = 1});
  t = m.conv("c2", m.layer("s", std::make_shared<Whole>(), {t}), {.filters = 8, .kernel = 3, .padding = 1});
  m.softmax_cross_entropy("loss", m.linear("fc", t, {.features = 3}));
  const Machine machine = default_machine();
  const Workload workload{.batch = 512, .optimizer = {}};
  std::vector<LeftOut> refused;
  PlannerOptions options{.ranks = 16};
  options.left_out = [&](const LeftOut& pattern) { refused.push_back(pattern); };
  const auto found = plan_strategies(m, workload, machine, {}, options);
  Strategy by_hand("c=16");
  by_hand.layer("*", {.output = "N@c"}).layer("s", {.output = "N C H W"});
  EXPECT_LE(found.front().cost.seconds, price(m, by_hand, workload, machine));
  // Chimera on two stages is faster still.
  const auto staged = plan_strategies(m, workload, machine, {}, {.ranks = 16, .most_split = 1, .least_stages = 2});
  EXPECT_LE(found.front().cost.seconds, staged.front().cost.seconds);
  ASSERT_FALSE(refused.empty());
  for (const auto& each : refused) {
    EXPECT_TRUE(each.still_tried);
    EXPECT_NE(each.why.find("layer 's' (whole): runs in one piece only"), std::string::npos) << each.why;
  }
}

// On fewer samples than ranks, stages that wait for each other may be faster than ranks without samples.
TEST(PlannerOptions, FewerMicrobatchesThanStagesAreTried) {
  if (short_run()) GTEST_SKIP() << long_under_sanitizer;
  const Model model = builtin_model("resnet18", {});
  const Machine machine = dgx_h100();
  const Workload workload{.batch = 32, .optimizer = {}};
  const auto found = plan_strategies(model, workload, machine, {}, {.ranks = 64, .best = 1});
  for (const int stages : {2, 4})
    for (const int microbatches : {1, 2})
      for (const ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::zb_h1}) {
        Strategy by_hand(fmt::format("data={}", 64 / stages));
        by_hand.layer("*", {.output = "N@data"}).stages(stages).schedule(kind, microbatches);
        EXPECT_LE(found.front().cost.seconds, price(model, by_hand, workload, machine)) << by_hand.print();
      }
  EXPECT_GT(found.front().strategy.grids().size(), static_cast<std::size_t>(found.front().strategy.microbatches()));
}

TEST(PlannerOptions, OneStrategyIsTheFirstOfThree) {
  if (short_run()) GTEST_SKIP() << long_under_sanitizer;
  const Model model = builtin_model("resnet18", {});
  const Workload workload{.batch = 64, .optimizer = {}};
  const auto one = plan_strategies(model, workload, dgx_h100(), {}, {.ranks = 16, .best = 1});
  ASSERT_EQ(one.size(), 1U);
  const auto three = plan_strategies(model, workload, dgx_h100(), {}, {.ranks = 16, .best = 3});
  EXPECT_EQ(one.front().cost.seconds, three.front().cost.seconds);
  Strategy by_hand("data=8");
  by_hand.layer("*", {.output = "N@data"}).stages(2).schedule(ScheduleKind::zb_h1, 1);
  EXPECT_LE(one.front().cost.seconds, price(model, by_hand, workload, dgx_h100()));
}

// Their estimates are less exact than those of one grid, so a search that mixed them would miss the second case.
TEST(PlannerOptions, NoPlainPipelineIsFaster) {
  if (short_run()) GTEST_SKIP() << long_under_sanitizer;
  for (const char* file : {"dgx-h100", "lassen", "dgx-a100"}) {
    const Machine machine = Machine::load((source_folder() / fmt::format("examples/machines/{}.toml", file)).string());
    const Model model = builtin_model("resnet18", {});
    const Workload workload{.batch = 64, .optimizer = {}};
    const auto found = plan_strategies(model, workload, machine, {}, {.ranks = 16});
    for (const int stages : {2, 4})
      for (const int microbatches : {1, 2, 4, 8}) {
        Strategy by_hand(fmt::format("data={}", 16 / stages));
        by_hand.layer("*", {.output = "N@data"}).stages(stages).schedule(ScheduleKind::one_f_one_b, microbatches);
        EXPECT_LE(found.front().cost.seconds, price(model, by_hand, workload, machine)) << file << "\n"
                                                                                        << by_hand.print();
      }
  }
}

Model with_batch_norm() {
  Model m("normalized");
  auto t = m.input("in", {.channels = 3, .spatial = {32, 32}});
  for (const char* name : {"a", "b", "c", "d"})
    t = m.batch_norm(fmt::format("{}_norm", name), m.conv(name, t, {.filters = 32, .kernel = 3, .padding = 1}));
  m.softmax_cross_entropy("loss", m.linear("fc", t, {.features = 10}));
  return m;
}

TEST(PlannerOptions, KeepBatchNormAllowsOneMicrobatch) {
  if (short_run()) GTEST_SKIP() << long_under_sanitizer;
  const Model model = with_batch_norm();
  const Workload workload{.batch = 64, .optimizer = {}};
  PlannerOptions options{.ranks = 4, .memory_limit = 4 << 20, .best = 8};
  const auto most = [&] {
    int microbatches = 0;
    for (const auto& each : plan_strategies(model, workload, default_machine(), {}, options))
      microbatches = std::max(microbatches, each.strategy.microbatches());
    return microbatches;
  };
  EXPECT_GT(most(), 1) << "else this test shows nothing";
  options.memory_limit = 0;
  options.keep_batch_norm = true;
  EXPECT_EQ(most(), 1);
  options.memory_limit = 1536 << 10;  // fits with more microbatches only
  EXPECT_NE(error_of([&] { most(); }).find("does not fit 4 ranks"), std::string::npos);
  options.keep_batch_norm = false;
  EXPECT_GT(most(), 1);
}

TEST(PlannerOptions, ATimeLimitEndsTheSearchWithWhatItHas) {
  PlannerOptions options{.ranks = 16, .time_limit = 1e-9};
  int called = 0;
  Unfinished left;
  options.unfinished = [&](const Unfinished& what) {
    ++called;
    left = what;
  };
  const Workload workload{.batch = 64, .optimizer = {}};
  const auto found = plan_strategies(with_batch_norm(), workload, dgx_h100(), {}, options);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(called, 1);
  EXPECT_GT(left.candidates, 0);
  EXPECT_GT(left.least_seconds, 0);
  EXPECT_EQ(left.not_improved, static_cast<int>(found.size()));
  options.time_limit = 1e6;
  plan_strategies(with_batch_norm(), workload, dgx_h100(), {}, options);
  EXPECT_EQ(called, 1) << "nothing was left out";
  for (const double bad : {-1.0, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_NE(error_of([&] {
                plan_strategies(with_batch_norm(), workload, dgx_h100(), {}, {.ranks = 2, .time_limit = bad});
              }).find("the time limit is"),
              std::string::npos);
}

TEST(PlannerOptions, LeastStages) {
  const Workload workload{.batch = 64, .optimizer = {}};
  for (const auto& each :
       plan_strategies(with_batch_norm(), workload, default_machine(), {}, {.ranks = 4, .least_stages = 2}))
    EXPECT_GE(each.strategy.grids().size(), 2U);
  EXPECT_EQ(error_of([&] {
              plan_strategies(with_batch_norm(), workload, default_machine(), {}, {.ranks = 4, .least_stages = 0});
            }),
            "the minimum number of stages is 0; it must be 1 or more");
}

}  // namespace
}  // namespace partita::test::planner_options_test
