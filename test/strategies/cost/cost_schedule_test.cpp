// The time of a step is that of the simulated schedule, and its parts sum to it, for every example strategy and for
// random ones.
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/cost/estimate.hpp"
#include "partita/strategies/plan/bind.hpp"

#include "test/strategies/cost/priced.hpp"
#include "test/support/cases.hpp"
#include "test/support/error_of.hpp"
#include "test/support/random_case.hpp"
#include "test/support/source_folder.hpp"

#include <filesystem>

namespace partita::test::cost_schedule_test {

namespace {

namespace fs = std::filesystem;

Strategy two_stages(const std::string& kind, int microbatches) {
  Strategy strategy;
  return strategy.group({"in", "a"}).group({"b", "loss"}).schedule(kind, microbatches);
}

/// Returns the times of both stages, summed over their layers. A transfer keeps each stage busy for `busy` seconds and
/// travels for `travels` seconds.
ScheduleTimes by_hand(const Cost& cost, double busy, double travels) {
  ScheduleTimes times;
  times.groups.assign(2, {0, 0, 0, 0, 0});
  for (std::size_t i = 0; i < cost.layers.size(); ++i) {
    GroupTimes& group = times.groups[i < 2 ? 0 : 1];
    group.forward += cost.layers[i].forward.total();
    group.backward_data += cost.layers[i].backward_data.total();
    group.backward_filter += cost.layers[i].backward_filter.total();
  }
  for (auto& group : times.groups) {
    group.forward += busy;
    group.backward_data += busy;
  }
  times.groups[0].step = (96 + 32) * 4 * 6e-9;
  times.groups[1].step = (160 + 32) * 4 * 6e-9;
  const TransferTime transfer{travels, travels / 2.024};  // 1 us of latency and 1.024 us of bytes
  times.edges = {{transfer, transfer}};
  return times;
}

void expect_whole(const Cost& cost, const std::string& what) {
  EXPECT_GT(cost.seconds, 0) << what;
  EXPECT_TRUE(std::isfinite(cost.seconds)) << what;
  EXPECT_NEAR(cost.parts.total(), cost.seconds, 1e-9 * cost.seconds) << what;
  const auto& p = cost.parts;
  for (const double part : {p.passes.compute, p.passes.halo, p.passes.redistribution, p.passes.product,
                            p.passes.collective, p.transfers, p.grad_reduce, p.update, p.bubble})
    EXPECT_GE(part, -1e-12 * cost.seconds) << what;
}

fs::path strategies() { return source_folder() / "examples" / "strategies"; }

}  // namespace

TEST(CostOfSchedules, AStepIsSimulated) {
  for (const char* kind : {"gpipe", "1f1b", "zb-h1"}) {
    const Plan plan = bound(two_convolutions(), two_stages(kind, 4), 4);
    const double transfer = (1 + 1.024) * us;  // a message of 4 x 8 x 8 elements
    for (const double overlap : {0., 0.25, 1.}) {
      const Cost cost = estimate(plan, round_machine(overlap));
      ASSERT_EQ(cost.transfers.size(), 1U);
      expect_seconds(cost.transfers[0], transfer);
      const ScheduleTimes times = by_hand(cost, transfer * (1 - overlap) / 2, transfer * overlap);
      const double whole = simulate(plan.schedule, graph_of(plan), times).makespan;
      const Simulation at_once =
          simulate(plan.schedule, graph_of(plan), by_hand(cost, transfer * (1 - overlap) / 2, 0));
      expect_seconds(cost.seconds, whole + 1 * us + 16 * 4e-9, "plus the loss to all stages");
      expect_seconds(cost.parts.transfers, 2 * 4 * transfer * (1 - overlap) / 2 + whole - at_once.makespan,
                     "four microbatches, output and gradient, and what waits for them");
      EXPECT_NEAR(cost.bubble_rate, at_once.bubble_rate(), 1e-9) << kind;
      expect_whole(cost, kind);
    }
  }
}

// More microbatches would not help against a slow link, so what it delays is no bubble.
TEST(CostOfSchedules, ASlowLinkIsNoBubble) {
  Machine fast = round_machine(1), slow = round_machine(1);
  fast.levels[0].latency = {1e-12, ""};
  fast.levels[0].bandwidth = {1e18, ""};
  slow.levels[0].latency = {1000 * us, ""};
  const Plan plan = bound(two_convolutions(), two_stages("1f1b", 4), 4);
  const Cost of_fast = estimate(plan, fast), of_slow = estimate(plan, slow);
  EXPECT_GT(of_slow.seconds, 5 * of_fast.seconds);
  EXPECT_LE(of_slow.parts.bubble, of_fast.parts.bubble * (1 + 1e-9));
  EXPECT_GT(of_slow.parts.transfers, 0.5 * of_slow.seconds);
}

// The sums of b hide behind the backward of a, as far as the link lets them.
TEST(CostOfSchedules, WhatIsHiddenIsNoPartOfAStep) {
  Strategy strategy = all_as("data=2", "N@data");
  strategy.bucket_bytes(64);
  const Plan plan = bound(two_convolutions(), strategy, 2);
  const Cost none = estimate(plan, round_machine(0)), all = estimate(plan, round_machine(1));
  EXPECT_EQ(none.parts.hidden, 0);
  EXPECT_GT(all.parts.hidden, 0);
  expect_seconds(all.parts.hidden + all.parts.grad_reduce, none.parts.grad_reduce);
  expect_whole(all, "hidden seconds are left out");
}

TEST(CostOfSchedules, AStageWaitsForTheOthers) {
  const Cost cost = estimate(bound(two_convolutions(), two_stages("gpipe", 2), 2), round_machine(1));
  EXPECT_EQ(cost.stage, 1) << "b computes both gradients";
  EXPECT_GT(cost.parts.bubble, cost.layers[1].forward.total()) << "until the first microbatch arrives";
  expect_seconds(cost.samples_per_second, 2 / cost.seconds);
}

TEST(CostOfSchedules, ChimeraRunsEachGroupOnBothStages) {
  const Plan plan = bound(two_convolutions(), two_stages("chimera", 4), 4);
  const Cost cost = estimate(plan, round_machine(1));
  expect_whole(cost, "chimera");
  double once = 0, sums = 0;
  for (const auto& layer : cost.layers) {
    once += layer.forward.total() + layer.backward_data.total() + layer.backward_filter.total();
    sums += layer.grad_reduce;
  }
  expect_seconds(cost.parts.passes.total(), 2 * once, "two microbatches through each replica");
  EXPECT_EQ(sums, 0) << "the replicas are summed after the backward pass";
  const double elements = 96 + 32 + 160 + 32;
  EXPECT_GT(cost.parts.update, elements * 4 * 5e-9) << "a stage updates both groups";
  EXPECT_GT(cost.parts.grad_reduce, 2 * us) << "and sums their gradients over the two stages";
}

TEST(CostOfSchedules, PartsOfWhatShipsSumToAStep) {
  const std::map<std::string, ModelSize> sizes{{"alexnet", {.extent = 71, .classes = 5, .width = 0.03}},
                                               {"cosmoflow", {.extent = 37, .width = 0.06}},
                                               {"dlrm", {.width = 0.03, .tables = {.rows = 7}}},
                                               {"fashion-cnn", {.extent = 15, .width = 0.1}},
                                               {"googlenet", {.extent = 67, .classes = 5, .width = 0.04}},
                                               {"lenet5", {.width = 0.5}},
                                               {"mesh-tangling", {.extent = 193, .channels = 3, .width = 0.03}},
                                               {"mlp", {.extent = 5, .classes = 7, .widths = {13, 11}}},
                                               {"resnet18", {.extent = 67, .classes = 5, .width = 0.05}},
                                               {"resnet50", {.extent = 67, .classes = 5, .width = 0.03}},
                                               {"unet3d", {.extent = 8, .width = 0.07}},
                                               {"vgg16", {.extent = 37, .classes = 5, .width = 0.03}}};
  int priced = 0;
  for (const auto& entry : fs::directory_iterator(strategies())) {
    const Strategy strategy = Strategy::load(entry.path().string());
    for (const auto& [name, size] : sizes)
      for (const bool training : {true, false}) {
        const Model model = builtin_model(name, size);
        Plan plan;
        if (!error_of([&] { plan = bound(model, strategy, 5, training); }).empty()) continue;  // made for another model
        ++priced;
        const std::string what = fmt::format("{} under {}", name, entry.path().string());
        for (const double overlap : {0., 0.5, 1.}) expect_whole(estimate(plan, round_machine(overlap)), what);
        expect_whole(estimate(plan, clustered_machine(2, 1)), what);
        if (HasFailure()) return;
      }
  }
  EXPECT_GE(priced, 2 * 17) << "each strategy fits at least one model";
}

TEST(CostOfSchedules, PartsOfDrawnPlansSumToAStep) {
  for (std::uint64_t seed = 0; seed < cases(400) && !HasFailure(); ++seed) {
    const RandomCase drawn(seed);
    const Plan plan =
        bind(drawn.model, drawn.strategy, {.batch = drawn.batch, .dtype = DType::f32, .optimizer = drawn.optimizer});
    const Cost slow = estimate(plan, round_machine(0)), fast = estimate(plan, round_machine(1));
    expect_whole(slow, drawn.print());
    expect_whole(fast, drawn.print());
    expect_whole(estimate(plan, clustered_machine(3, 1)), drawn.print());
    if (plan.grids.size() == 1) {  // with several stages, other arrival times can make a greedy list end later
      EXPECT_LE(fast.parts.passes.total(), slow.parts.passes.total() * (1 + 1e-12)) << drawn.print();
      EXPECT_LE(fast.seconds, slow.seconds * (1 + 1e-12)) << drawn.print();
    }
  }
}

}  // namespace partita::test::cost_schedule_test
