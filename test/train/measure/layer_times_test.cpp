// Checks that ranks measure their own work: every layer on each rank where it computes, for any plan, and nothing that
// is known already.
#include "src/train/measure/layer_times.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "src/train/measure/timed_steps.hpp"
#include "strategies/cost/local_work.hpp"

#include "partita/strategies/cost/estimate.hpp"
#include "partita/train/kernels/custom_layer.hpp"
#include "src/comm/threads/threads.hpp"
#include "test/support/error_of.hpp"
#include "test/support/placed.hpp"

#include <gtest/gtest.h>

namespace partita::test::layer_times_test {
namespace {

/// Convolutions, a normalization, and an output that skips layers.
Model skips() {
  Model m("skips");
  const auto in = m.input("in", {.channels = 2, .spatial = {9, 6}});
  const auto a = m.conv("a", in, {.filters = 4, .kernel = 3, .padding = 1});
  auto t = m.batch_norm("norm", a);
  t = m.relu("relu", t);
  t = m.conv("b", t, {.filters = 4, .kernel = 3, .padding = 1});
  t = m.add("sum", t, a);
  t = m.max_pool("pool", t, {.window = 2, .stride = 1});
  t = m.dropout("drop", t, {.rate = 0.3});
  t = m.linear("fc1", t, {.features = 6, .activation = Activation{Activation::Kind::gelu}});
  t = m.linear("fc2", t, {.features = 4});
  m.softmax_cross_entropy("loss", t);
  return m;
}

const MeasureOptions quick{.backend = "reference", .most = 3, .budget = 0.0};

/// Returns the times that all ranks have in the end, which must be equal.
KernelTimes measured(const Plan& plan, const KernelTimes& known = {}) {
  std::vector<KernelTimes> times(static_cast<std::size_t>(plan.ranks()));
  run_threads(plan.ranks(),
              [&](Communicator& comm) { times[comm.rank()] = measure_layers(plan, comm.rank(), quick, known, comm); });
  for (const auto& each : times) EXPECT_EQ(each.print(), times[0].print());
  return times[0];
}

void expect_times(const LayerPlan& layer, const LayerTimes& times, int rank, bool training) {
  const bool computes = !layer->at.y.owned(rank).empty();
  if (!layer.inputs.empty() && computes) {
    EXPECT_GT(times.forward, 0);
  }
  if (!training) {
    EXPECT_EQ(times.backward + times.backward_data + times.backward_filter, 0);
  }
  if (!training || !layer.has_backward() || !computes) return;
  EXPECT_GT(times.backward, 0);
  EXPECT_GT(times.backward_data + times.backward_filter, 0);
  if (layer.needs_any_dx()) {
    EXPECT_GT(times.backward_data, 0);
  }
  if (layer.trains()) {
    EXPECT_GT(times.backward_filter, 0);
  }
}

/// Every rank finds times for every layer of its stage, in microbatches of both sizes; then the cost estimate uses only
/// measured times.
void expect_all_measured(const Strategy& strategy, Index batch, bool training = true) {
  SCOPED_TRACE(strategy.print());
  const Plan plan = test::bind_placed(skips(), strategy,
                                      {.batch = batch, .dtype = DType::f32, .training = training, .optimizer = {}});
  const KernelTimes times = measured(plan);
  for (const auto* layers : {&plan.layers, &plan.remainder_layers})
    for (std::size_t i = 0; i < layers->size(); ++i)
      for (int rank = 0; rank < plan.grid_of(static_cast<int>(i)).size(); ++rank) {
        const LayerPlan& layer = (*layers)[i];
        SCOPED_TRACE(fmt::format("{} on rank {} of stage {}", layer.name, rank, plan.stage_of(static_cast<int>(i))));
        const std::string work = local_work(layer, rank, plan.workload);
        const Loop loop = timed_loop(plan, plan.stage_of(static_cast<int>(i)));
        ASSERT_TRUE(times.has(work, loop));
        expect_times(layer, *times.find(work, loop), rank, training);
      }
  const Cost cost = estimate(plan, default_machine(), times);
  for (const auto& layer : cost.layers) EXPECT_TRUE(layer.measured);
  std::size_t updates = 0;
  for (const auto& [of, each] : times.all()) updates += of.first.starts_with("reference update ") ? 1 : 0;
  EXPECT_EQ(updates > 0, training);
}

Strategy all_as(const std::string& grid, const std::string& output) {
  Strategy strategy(grid);
  return strategy.layer("*", {.output = output});
}

TEST(LayerTimes, OfEveryLayerOnEveryRank) {
  expect_all_measured(Strategy(), 2);
  expect_all_measured(all_as("data=2 y=2", "N@data H@y"), 3);
  expect_all_measured(all_as("y=3", "H@y"), 1);
  expect_all_measured(all_as("c=2", "C@c"), 2);
  expect_all_measured(all_as("c=2", "C@c").layer("*", {.algorithm = "auto"}).layer("fc1", {.weights = "F@c"}), 2);
  expect_all_measured(all_as("data=4", "N@data").optimizer_state(Strategy::OptimizerState::sharded), 6);
  expect_all_measured(all_as("data=2 y=2", "N@data H@y"), 4, false);
}

TEST(LayerTimes, OfMicrobatchesOfTwoSizes) {
  expect_all_measured(all_as("data=2", "N@data").schedule("gpipe", 3), 7);
  expect_all_measured(all_as("y=2", "H@y").layer("*", {.recompute = true}).schedule("1f1b", 2), 3);
}

TEST(LayerTimes, OfStages) {
  for (const char* kind : {"1f1b", "zb-h1", "chimera", "interleaved", "zb-v"}) {
    Strategy strategy;
    expect_all_measured(strategy.stages(2).schedule(kind, 3), 7);
  }
  Strategy skipping;
  skipping.group({"in", "norm"}).group({"relu", "b"}).group({"sum", "loss"}).schedule("1f1b", 2);
  expect_all_measured(skipping, 4);
  Strategy grids = all_as("data=2", "N@data");
  grids.group({"in", "b", Grid::parse("data=2")}).group({"sum", "loss", Grid::parse("")}).schedule("1f1b", 2);
  expect_all_measured(grids, 4);
  expect_all_measured(skipping, 4, false);
}

/// y = x; it notes when it runs, forward and backward.
class Tap final : public CustomLayer {
 public:
  explicit Tap(std::string& log) : log_(log) {}
  std::string_view kind() const override { return "tap"; }
  Shape output(std::span<const Shape> inputs) const override { return inputs[0]; }
  OperatorLayouts layouts(const LayoutRequest& request) const override {
    const Layout x = request.input[0].value_or(request.output).with_partial(0);
    return {.x = {x}, .y = x, .dx = {x}, .w = {}, .dw = {}};
  }
  void forward(const KernelCall&, std::span<const Tensor> x, const Tensor& y) const override {
    copy_box(x[0], y, y.box(), {});
    log_ += 'F';
  }
  void backward_data(const KernelCall&, const Tensor& dy, std::span<const Tensor> dx) const override {
    copy_box(dy, dx[0], dy.box(), {});
    log_ += 'B';
  }

 private:
  std::string& log_;
};

/// Returns the order in which a layer of each of `stages` stages ran while it was measured. Each rank writes its own
/// entry.
std::vector<std::string> order_of_runs(const std::string& kind, int stages, bool recompute = false) {
  std::map<std::string, std::string> logs;
  Model m("taps");
  auto t = m.input("in", {.channels = 2, .spatial = {4}});
  for (int stage = 0; stage < stages; ++stage) {
    t = m.conv(fmt::format("conv{}", stage), t, {.filters = 2, .kernel = 3, .padding = 1});
    const auto name = fmt::format("tap{}", stage);
    t = m.layer(name, std::make_shared<Tap>(logs[name]), {t});
  }
  m.mean_squared_error("loss", t);
  Strategy strategy;
  strategy.layer("*", {.recompute = recompute}).schedule(kind, 6);
  if (stages == 2) strategy.group({"in", "tap0"}).group({"conv1", "loss"});
  static_cast<void>(measured(bind(m, strategy, {.batch = 6, .optimizer = {}})));
  std::vector<std::string> all;
  for (const auto& [name, log] : logs) all.push_back(log);
  return all;
}

/// The backward pass whole and split, each with one run that is not timed and three that are.
std::string eightfold(const std::string& run) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += run;
  return text;
}

// A layer finds in the caches what a step of six microbatches leaves there: it is timed in the plan's order of the
// first four.
TEST(LayerTimes, InTheOrderOfThePlansSchedule) {
  using Runs = std::vector<std::string>;
  EXPECT_EQ(order_of_runs("gpipe", 1), (Runs{eightfold("FFFFBBBB")}));
  EXPECT_EQ(order_of_runs("1f1b", 2), (Runs{eightfold("FFBFBFBB"), eightfold("FBFBFBFB")}));
  EXPECT_EQ(order_of_runs("zb-h1", 2), (Runs{eightfold("FFBFBFBB"), eightfold("FBFBFBFB")}));
  EXPECT_EQ(order_of_runs("gpipe", 1, true), (Runs{eightfold("FB")})) << "more microbatches may not fit";
}

TEST(LayerTimes, WhatIsKnownStays) {
  const Plan plan = bind(skips(), all_as("data=2", "N@data").schedule("gpipe", 2), {.batch = 6, .optimizer = {}});
  KernelTimes known("elsewhere");
  const KernelTimes found = measured(plan);
  for (const auto& [of, times] : found.all())
    known.set(of.first, of.second, {7, 8, 9, 10});  // full names, with the backend's name
  EXPECT_EQ(measured(plan, known).print(), known.print()) << "and nothing is added";
  KernelTimes some("elsewhere", "reference");
  const std::string conv = local_work(plan.layers[1], 0, plan.workload);
  some.set(conv, {2, 2}, {7, 8, 9, 10});
  const KernelTimes all = measured(plan, some);
  EXPECT_EQ(all.find(conv, {2, 2})->forward, 7);
  EXPECT_EQ(all.all().size(), found.all().size());
  EXPECT_EQ(all.where(), "elsewhere");
  EXPECT_EQ(all.backend(), "reference");
}

TEST(LayerTimes, AnotherLoopIsMeasuredBesideThem) {
  const auto plan = [](int microbatches) {
    return bind(skips(), Strategy().schedule("gpipe", microbatches), {.batch = 2 * microbatches, .optimizer = {}});
  };
  const KernelTimes one = measured(plan(1));
  KernelTimes two = measured(plan(2), one);
  EXPECT_EQ(two.all().size(), 2 * one.all().size()) << "the same work, and the same update";
  for (const auto& [of, times] : one.all()) {
    EXPECT_EQ(two.all().at(of).forward, times.forward);
    EXPECT_TRUE(two.all().contains({of.first, Loop{2, 2}})) << of.first;
  }
}

TEST(LayerTimes, AnotherBackendsStayBesideThem) {
  const Plan plan = bind(skips(), Strategy(), {.batch = 2, .optimizer = {}});
  const std::string conv = local_work(plan.layers[1], 0, plan.workload);
  KernelTimes known("elsewhere", "another");
  known.set(conv, {}, {7, 8, 9, 10});
  KernelTimes all = measured(plan, known);
  EXPECT_EQ(all.all().size(), measured(plan).all().size() + 1);
  EXPECT_NE(all.find(conv, {})->forward, 7);
  all.use("another");
  EXPECT_EQ(all.find(conv, {})->forward, 7);
}

TEST(LayerTimes, AnUpdateOfOtherElementsIsMeasured) {
  const auto of = [](Strategy::OptimizerState update) {
    return bind(skips(), all_as("data=2", "N@data").optimizer_state(update), {.batch = 4, .optimizer = {}});
  };
  const KernelTimes known = measured(of(Strategy::OptimizerState::replicated));
  EXPECT_EQ(measured(of(Strategy::OptimizerState::sharded), known).all().size(), known.all().size() + 1)
      << "the same layers, half of the update";
}

TEST(LayerTimes, UnitedTimesAreTheSlowestRanks) {
  run_threads(3, [&](Communicator& comm) {
    KernelTimes mine("here");
    const double rank = comm.rank();
    mine.set("all", {}, {rank, 4 - 2 * rank, 1, 0});
    mine.set("all", {4, 2}, {rank + 6, 0, 0, 0});
    if (comm.rank() > 0) mine.set("two", {}, {rank, 0, 0, 4 * rank});
    mine.set(fmt::format("rank {}", comm.rank()), {}, {rank, rank, rank, rank});
    const KernelTimes times = united(mine, comm);
    ASSERT_EQ(times.all().size(), 6U);
    EXPECT_DOUBLE_EQ(times.find("all", {})->forward, 2) << "rank 2's";
    EXPECT_DOUBLE_EQ(times.find("all", {})->backward, 4) << "rank 0's";
    EXPECT_DOUBLE_EQ(times.find("all", {})->backward_data, 1);
    EXPECT_DOUBLE_EQ(times.find("all", {4, 2})->forward, 8) << "of this loop alone";
    EXPECT_DOUBLE_EQ(times.find("two", {})->forward, 2);
    EXPECT_DOUBLE_EQ(times.find("two", {})->backward_filter, 8);
    EXPECT_DOUBLE_EQ(times.find("rank 2", {})->forward, 2);
    EXPECT_EQ(times.where(), "here");
    EXPECT_TRUE(united(KernelTimes("here"), comm).empty());
  });
}

TEST(LayerTimes, SayWhoseTheyAre) {
  const std::string place = place_of_times({.backend = "reference", .threads = 2});
  EXPECT_TRUE(place.starts_with("2 threads on ")) << place;
  EXPECT_TRUE(place_of_times({.backend = "reference", .threads = 1}).starts_with("1 thread on "));
  EXPECT_EQ(backend_of_times({.backend = "reference", .threads = 2}, DType::f32), "reference");
}

// Layers and whole steps of a transformer are measured with tokens that its embedding knows.
TEST(LayerTimes, OfATransformerAreMeasuredWithTokens) {
  const Model m =
      builtin_model("gpt", {.transformer = {.layers = 1, .hidden = 8, .heads = 2, .sequence = 5, .vocabulary = 3}});
  Strategy s("t=2");
  s.layer("*", {.output = "L@t"}).layer("embedding", {.output = "L@t", .weights = "V@t"});
  const Workload workload{.batch = 2, .optimizer = {}};
  const Plan plan = bind(m, s, workload);
  const KernelTimes times = measured(plan);
  for (std::size_t i = 1; i < plan.layers.size(); ++i) {
    const auto found = times.find(local_work(plan.layers[i], 0, plan.workload), timed_loop(plan, 0));
    ASSERT_TRUE(found) << plan.layers[i].name;
    EXPECT_GT(found->forward, 0) << plan.layers[i].name;
  }
  run_threads(2, [&](Communicator& comm) { EXPECT_GT(time_steps(m, s, workload, quick, 0, comm).median, 0); });
}

}  // namespace
}  // namespace partita::test::layer_times_test
