// PlanPricer gives, for every plan of a search, exactly what a formula of that plan alone gives.
#include "strategies/cost/plan_pricer.hpp"

#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/planner/stage_partition.hpp"
#include "test/strategies/cost/priced.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace partita::test::plan_pricer_test {
namespace {

/// Strategies that have many layers in common, on one grid and on stages.
std::vector<Strategy> strategies(const Model& model, const Workload& workload, const Machine& machine) {
  std::vector<Strategy> all;
  for (const char* grid : {"data=8", "data=2 y=2 c=2", "data=5", "data=3 c=3"})
    for (const char* output : {"N@data", "N@data C@c", "N@data H@y", ""}) {
      Strategy strategy(grid);
      if (std::string_view(output).find("@c") != std::string_view::npos && strategy.grid().find("c") < 0) continue;
      if (std::string_view(output).find("@y") != std::string_view::npos && strategy.grid().find("y") < 0) continue;
      strategy.layer("*", {.output = output}).layer("res2*", {.output = "N@data"});
      all.push_back(strategy);
      all.push_back(strategy.schedule(ScheduleKind::one_f_one_b, 3).layer("res3*", {.recompute = true}));
    }
  for (const ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::zb_h1}) {
    Strategy staged("data=4");
    staged.layer("*", {.output = "N@data"}).stages(2).schedule(kind, 3);
    all.push_back(place_stages_nearest(model, staged, workload, machine, {}, 0));
  }
  return all;
}

TEST(PlanPricer, EqualsTheFormulaOfEachPlan) {
  const Model model = builtin_model("resnet18", {});
  const Workload workload{.batch = 17, .optimizer = {}};
  for (const Machine& machine : {dgx_h100(), clustered_machine(3, 2)}) {
    const KernelTimes none;
    PlanPricer pricer(machine, none);
    const auto all = strategies(model, workload, machine);
    for (int again = 0; again < 2; ++again)
      for (std::size_t i = 0; i < all.size(); ++i) {
        const Plan plan = bind(model, all[i], workload);
        const Cost right = estimate(plan, machine), known = pricer.cost(plan);
        EXPECT_EQ(known.seconds, right.seconds) << all[i].print();
        EXPECT_EQ(known.seconds, pricer.step(plan).seconds);
        EXPECT_EQ(known.memory.total, right.memory.total);
        ASSERT_EQ(known.layers.size(), right.layers.size());
        for (std::size_t layer = 0; layer < right.layers.size(); ++layer)
          EXPECT_EQ(known.layers[layer].forward.total(), right.layers[layer].forward.total())
              << plan.layers[layer].name;
      }
  }
}

}  // namespace
}  // namespace partita::test::plan_pricer_test
