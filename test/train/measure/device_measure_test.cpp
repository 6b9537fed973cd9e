// Measurements on the test double of a device, whose clock counts operations: times of layers, kernels and messages,
// the profile, and the actions of a trace.
#include "partita/strategies/cost/estimate.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/device/profile.hpp"
#include "src/train/measure/kernel_rates.hpp"
#include "src/train/measure/measure_machine.hpp"
#include "src/train/trainer/trainer_parts.hpp"
#include "strategies/cost/local_work.hpp"
#include "test/support/lazy_backend.hpp"

#include <gtest/gtest.h>

namespace partita::test::device_measure_test {
namespace {

Model net() {
  Model m("net");
  auto t = m.input("in", {.channels = 2, .spatial = {5, 3}});
  t = m.relu("relu", m.conv("conv", t, {.filters = 3, .kernel = 3, .padding = 1}));
  t = m.linear("fc", t, {.features = 3});
  m.softmax_cross_entropy("loss", t);
  return m;
}

MeasureOptions on(LazyDevice& device, Communicator& world) {
  MeasureOptions options;
  options.most = 3;
  options.budget = 0;
  options.device =
      std::make_shared<MeasuredDevice>("a card", 1 << 20, [&](DType) { return lazy_processor(world, device); });
  return options;
}

TEST(MeasureOnDevice, LayersOfEveryRank) {
  Strategy strategy("data=2 y=2");
  strategy.layer("*", {.output = "N@data H@y"}).schedule("gpipe", 2);
  const Plan plan = bind(net(), strategy, {.batch = 5, .optimizer = {}});
  LazyDevice device(1);
  run_threads(plan.ranks(), [&](Communicator& world) {
    const MeasureOptions options = on(device, world);
    const KernelTimes times = measure_layers(plan, world.rank(), options, {}, world);
    EXPECT_EQ(times.where(), "a card");
    EXPECT_EQ(times.backend(), "functors");
    for (const auto* layers : {&plan.layers, &plan.remainder_layers})
      for (std::size_t i = 1; i < layers->size(); ++i) {
        const auto found = times.find(local_work((*layers)[i], world.rank(), plan.workload), timed_loop(plan, 0));
        ASSERT_TRUE(found) << (*layers)[i].name;
        EXPECT_GT(found->forward, 0) << (*layers)[i].name;
        EXPECT_GT(found->backward, 0) << (*layers)[i].name;
      }
    const Cost cost = estimate(plan, default_machine(), times);
    for (const auto& layer : cost.layers) EXPECT_TRUE(layer.measured);
  });
  device.check();
  EXPECT_EQ(device.blocks(), 0U);
}

TEST(MeasureOnDevice, KernelsOfEachTypeAndMessages) {
  constexpr ProbeSizes few{{1, 2, 3, 4}, {1, 2, 3, 4}, 3, 1, 2, {1, 1}, {1, 2}};
  LazyDevice device(2);
  run_threads(2, [&](Communicator& world) {
    const MeasureOptions options = on(device, world);
    Machine machine;
    measure_kernels(machine, options, few, world);
    for (const Precision type : {Precision::f32, Precision::bf16, Precision::f16})
      EXPECT_GT(machine.peaks.at(type).value, 0) << name(type);
    EXPECT_GT(machine.memory_bandwidth.value, 0);
    EXPECT_GT(machine.kernel.value, 0);
    for (const KernelKind kind : {KernelKind::conv, KernelKind::product})
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        ASSERT_NE(machine.share(kind, dtype), nullptr);
        EXPECT_EQ(machine.share(kind, dtype)->points.size(), 4U);
      }
    // The double's clock counts the operations of all ranks, so its rates have no scale; a machine file bounds them.
    for (auto& [type, peak] : machine.peaks) peak.value = 1e12;
    machine.memory_bandwidth.value = 1e11;
    machine.kernel.value = 1e-6;
    machine.name = options.device->name();
    machine.memory = {1e9, "given"};
    machine.levels = measure_levels(2, 4096, world, options.device->processor(DType::f32));
    ASSERT_EQ(machine.levels.size(), 1U);
    EXPECT_GT(machine.levels[0].latency.value, 0);
    EXPECT_EQ(machine.levels[0].verbs.size(), 4U);
    EXPECT_EQ(Machine::parse(machine.print(), "printed").print(), machine.print());
  });
  device.check();
}

TrainerOptions training() {
  TrainerOptions options;
  options.batch = 5;
  options.dtype = DType::f64;
  return options;
}

TEST(ProfileOnDevice, ChargesEveryOperationToALayer) {
  LazyDevice device(3);
  run_threads(1, [&](Communicator& world) {
    Trainer trainer(net(), Strategy(), training(), world, lazy_processor(world, device));
    const LocalBatch batch = trainer.make_batch(5);
    trainer.step(batch);
    device.finish(trainer.stream());
    constexpr int steps = 200;  // with more moments than a profile keeps
    Profile profile(trainer.device(), trainer.stream());
    trainer.step(batch);
    const auto of_one = profile.by_layer();
    profile.reset();
    const Event start = device.mark(trainer.stream());
    for (int step = 0; step < steps; ++step) trainer.step(batch);
    const Event end = device.mark(trainer.stream());
    const auto by_layer = profile.by_layer();
    double sum = 0;
    for (const auto& [layer, seconds] : by_layer)
      for (const double each : seconds) sum += each;
    EXPECT_NEAR(sum, device.seconds(start, end), 1e-9);
    constexpr auto compute = static_cast<std::size_t>(Profile::Part::compute);
    for (const char* layer : {"conv", "relu", "fc", "loss"}) {
      EXPECT_GT(of_one.find(layer)->second[compute], 0) << layer;
      EXPECT_NEAR(by_layer.find(layer)->second[compute], steps * of_one.find(layer)->second[compute], 1e-9) << layer;
    }
  });
}

TEST(TraceOnDevice, ActionsHaveTheTimesOfTheirStream) {
  LazyDevice device(4);
  Strategy strategy;
  strategy.group({"in", "conv"}).group({"relu", "loss"}).schedule("1f1b", 2);
  run_threads(2, [&](Communicator& world) {
    Trainer trainer(net(), strategy, training(), world, lazy_processor(world, device));
    const LocalBatch batch = trainer.make_batch(5);
    std::vector<TimedAction> actions;
    TrainerParts::executor(trainer, 5, true).record(&actions);
    for (int step = 0; step < 2; ++step) trainer.step(batch);
    ASSERT_EQ(actions.size(), 2 * TrainerParts::executor(trainer, 5, true).actions());
    double before = 0;
    for (const auto& [action, start, end] : actions) {
      EXPECT_LE(before, start);
      EXPECT_LE(start, end);
      if (action.is_compute()) {
        EXPECT_LT(start, end) << action.print();
      }
      before = end;
    }
  });
}

}  // namespace
}  // namespace partita::test::device_measure_test
