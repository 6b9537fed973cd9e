// Compares prices with hand-computed ones, one kind of cost at a time, on machines with round numbers.
#include "partita/strategies/cost/estimate.hpp"
#include "partita/strategies/cost/explain_cost.hpp"
#include "partita/strategies/planner/stage_partition.hpp"
#include "strategies/cost/local_work.hpp"

#include "test/strategies/cost/priced.hpp"
#include "test/support/diffusion_rule.hpp"
#include "test/support/error_of.hpp"

#include <functional>
#include <optional>

namespace partita::test::estimate_test {

namespace {

constexpr int a = 1, b = 2;  // layers of two_convolutions

/// Returns the seconds of a kernel: the launch, plus the longer one of 1 ns per operation and 1 ns per byte.
double kernel(double flops, double bytes) { return 1 * us + std::max(flops, bytes) * 1e-9; }

/// Returns the seconds of convolution "a" for `samples` samples of `rows` rows.
double convolution(double samples, double rows) {
  return kernel(samples * rows * 8 * 4 * 2 * 18, samples * rows * 8 * (2 + 4) * 4 + 304);
}

/// Returns the seconds of an all-reduce over two ranks: by recursive doubling, or in two halves of which each rank sums
/// one.
double sum_of_two(double bytes, double alpha = 1 * us, double beta = 1e-9) {
  const double gamma = 3e-9;
  return std::min(alpha + bytes * (beta + gamma), 2 * alpha + bytes * (beta + gamma / 2));
}

}  // namespace

TEST(CostModel, ComputesByRateOrByBytes) {
  const Plan plan = bound(two_convolutions(), Strategy(), 1);
  const Cost cost = estimate(plan, round_machine());
  const LayerCost& layer = cost.layers[a];
  expect_seconds(layer.forward.compute, 10.216 * us, "9216 operations and a launch");
  expect_seconds(layer.backward_data.total(), 0, "the input of the model needs no gradient");
  expect_seconds(layer.backward_filter.compute, 10.216 * us);
  EXPECT_FALSE(layer.measured);
  EXPECT_EQ(layer.forward.communication(), 0);
  Machine fast = round_machine();
  fast.arithmetic.value = 1e12;
  expect_seconds(estimate(plan, fast).layers[a].forward.compute, (1 + 0.512 + 1.024 + 0.304) * us, "its bytes");
  Machine half = round_machine();
  half.efficiency[KernelKind::conv] = {{{{1, 0.5}}, ""}};
  expect_seconds(estimate(plan, half).layers[a].forward.compute, (1 + 2 * 9.216) * us, "half of the arithmetic rate");
  half.efficiency = {{KernelKind::others, {{{{1, 0.25}}, ""}}}};
  expect_seconds(estimate(plan, half).layers[a].forward.compute, (1 + 4 * 9.216) * us, "the curve for other kernels");
  EXPECT_EQ(cost.layers[0].forward.total(), 0) << "the input computes nothing";
}

TEST(CostModel, GroupsAndChannelsThatARankLacks) {
  Model m("groups");
  auto t = m.input("in", {.channels = 4, .spatial = {8, 8}});
  t = m.conv("depth", t, {.filters = 4, .kernel = 3, .padding = 1, .groups = 4, .bias = false});
  t = m.conv_transpose("up", t, {.filters = 2, .kernel = 2, .stride = 2, .bias = false});
  m.mean_squared_error("loss", t);
  const auto cost = [&](int ranks) {
    Machine machine = round_machine();
    machine.memory_bandwidth.value = 1e15;
    return estimate(bound(m, all_as(fmt::format("c={}", ranks), "C@c"), 1), machine);
  };
  expect_seconds(cost(1).layers[1].forward.compute, kernel(2 * 64 * 4 * 9, 0));
  expect_seconds(cost(2).layers[1].forward.compute, kernel(2 * 64 * 2 * 9, 0), "two of the four groups");
  expect_seconds(cost(1).layers[2].forward.compute, kernel(2 * 64 * 4 * 2 * 4, 0));
  EXPECT_GT(cost(4).layers[2].forward.compute, 1 * us) << "two of the four ranks have no output channel";
  EXPECT_LT(cost(4).layers[2].forward.compute, kernel(2 * 64 * 4 * 2 * 4, 0));
}

TEST(CostModel, HalosAreMessages) {
  const Plan plan = bound(two_convolutions(), all_as("y=2", "H@y"), 1);
  const LayerCost layer = estimate(plan, round_machine()).layers[a];
  expect_seconds(layer.forward.compute, convolution(1, 4));
  expect_seconds(layer.forward.halo, 1.064 * us, "a row of 8 x 2 channels in one message");
  const LayerCost second = estimate(plan, round_machine()).layers[b];
  expect_seconds(second.forward.halo, 1.128 * us);
  expect_seconds(second.backward_data.halo, 1.128 * us, "the halo of the gradient of y");
  const Plan four = bound(two_convolutions(), all_as("y=4", "H@y"), 1);
  expect_seconds(estimate(four, round_machine()).layers[a].forward.halo, 1.128 * us,
                 "inner ranks have two neighbors, whose messages are under way together");
}

// The only row of y is on rank 0. It receives the other two rows of x, of 12 bytes each, while each of the others sends
// one.
TEST(CostModel, ARankWaitsForAllThatItReceives) {
  Model m("rows");
  m.mean_squared_error("loss",
                       m.conv("one", m.input("in", {.channels = 1, .spatial = {3, 3}}), {.filters = 1, .kernel = 3}));
  const Cost cost = estimate(bound(m, all_as("y=3", "H@y"), 1), round_machine());
  expect_seconds(cost.layers[1].forward.halo, 1 * us + 2 * 12e-9);
}

TEST(CostModel, HalosHideBehindComputing) {
  const Plan plan = bound(two_convolutions(), all_as("y=2", "H@y"), 1);
  const auto halo = [&](double overlap, double latency) {
    Machine machine = round_machine(overlap);
    machine.levels[0].latency.value = latency;
    return estimate(plan, machine).layers[a].forward.halo;
  };
  expect_seconds(halo(0, 1 * us), 1.064 * us);
  expect_seconds(halo(0.5, 1 * us), 0.532 * us);
  expect_seconds(halo(1, 1 * us), 0);
  expect_seconds(halo(1, 100 * us), 100.064 * us - convolution(1, 4), "at most the time of the computation");
  expect_seconds(halo(0.5, 100 * us), 100.064 * us - convolution(1, 4));
}

/// Returns the cost of a layer between two others, with its rows over two ranks. On this machine a halo takes 100 us
/// and overlaps fully with computation.
LayerCost far_halo(const std::function<Value(Model&, Value)>& layer, const std::string& schedule = "1f1b") {
  Model m("halos");
  auto t = m.input("in", {.channels = 2, .spatial = {16, 16}});
  t = m.conv("before", t, {.filters = 2, .kernel = 1});
  t = layer(m, t);
  m.mean_squared_error("loss", t);
  Machine machine = round_machine(1);
  machine.levels[0].latency.value = 100 * us;
  return estimate(bound(m, all_as("y=2", "H@y").schedule(schedule, schedule == "1f1b" ? 1 : 2), 4), machine).layers[2];
}

// During a halo exchange the executor computes the interior. If both gradients are one action, it computes dw during
// the exchange of dy's halo.
TEST(CostModel, HalosHideBehindWhatGoesOn) {
  const auto conv = [](Model& m, Value t) { return m.conv("it", t, {.filters = 2, .kernel = 3, .padding = 1}); };
  const LayerCost one = far_halo(conv), halves = far_halo(conv, "zb-h1");
  EXPECT_EQ(one.backward_filter.hidden, one.backward_filter.compute) << "dw hides the halo of dy";
  EXPECT_EQ(one.backward_data.hidden, 0);
  EXPECT_EQ(one.forward.hidden, one.forward.compute);
  EXPECT_EQ(halves.backward_filter.hidden, 0) << "dw comes later";
  const LayerCost pool =
      far_halo([](Model& m, Value t) { return m.max_pool("it", t, {.window = 3, .stride = 1, .padding = 1}); });
  EXPECT_EQ(pool.forward.hidden, pool.forward.compute);
  EXPECT_EQ(pool.backward_data.hidden, pool.backward_data.compute);
  const LayerCost up = far_halo(
      [](Model& m, Value t) { return m.upsample("it", t, {.scale = 2, .interpolation = Interpolation::linear}); });
  EXPECT_GT(up.forward.halo, 100 * us);
  EXPECT_EQ(up.forward.hidden, 0);
}

/// Returns the cost of a layer of one's own whose halos overlap as it says.
LayerCost own_far_halo(HaloOverlap overlap, bool dy_halo, const std::string& schedule = "1f1b") {
  const auto own = std::make_shared<DiffusionRule<Operator>>(overlap, dy_halo);
  return far_halo([&](Model& m, Value t) { return m.layer("it", own, {t}); }, schedule);
}

TEST(CostModel, HalosOfOnesOwnLayerHideBehindItsComputing) {
  const LayerCost none = own_far_halo({}, true), all = own_far_halo({.x = true, .dy = true}, true);
  EXPECT_EQ(none.forward.hidden + none.backward_data.hidden + none.backward_filter.hidden, 0);
  EXPECT_GT(none.forward.halo, 100 * us);
  EXPECT_GT(none.backward_data.halo, 100 * us);
  EXPECT_GT(none.backward_filter.compute, 1 * us) << "it computes dw separately";
  expect_seconds(all.forward.total(), none.forward.total() - none.forward.compute, "the interior hides the halo of x");
  expect_seconds(all.backward_data.total(), none.backward_data.total() - none.backward_filter.compute,
                 "dw hides the halo of dy");
  EXPECT_EQ(own_far_halo({.x = true, .dy = true}, true, "zb-h1").backward_filter.hidden, 0) << "dw comes later";
  const LayerCost back = own_far_halo({}, false), hidden = own_far_halo({.dx = true}, false);
  expect_seconds(hidden.backward_data.total(), back.backward_data.total() - back.backward_data.compute,
                 "the interior hides the return of x's halo");
}

TEST(CostModel, WhatComputingHidesItHidesOnce) {
  Strategy strategy = all_as("y=2", "H@y");
  strategy.layer("b", {.recompute = true});
  Machine machine = round_machine(1);
  machine.levels[0].latency.value = 100 * us;
  const LayerCost layer = estimate(bound(two_convolutions(), strategy, 1), machine).layers[b];
  expect_seconds(layer.backward_data.halo, 2 * 100.128 * us - layer.forward.compute - layer.backward_filter.compute,
                 "the recomputed forward hides the halo of x, and dw hides that of the gradient of y");
}

TEST(CostModel, SumsByTheCheapestAlgorithmOrAsMeasured) {
  const Plan plan = bound(two_convolutions(), all_as("data=2", "N@data").bucket_bytes(1), 2);
  Machine machine = round_machine();
  // One bucket per weight tensor: 96 elements of the filter, 32 of the bias.
  expect_seconds(estimate(plan, machine).layers[a].grad_reduce, sum_of_two(96 * 4) + sum_of_two(32 * 4));
  machine.levels[0].verbs[{Verb::all_reduce, 2}] = {{{128, 3 * us}, {384, 7 * us}}, ""};
  expect_seconds(estimate(plan, machine).layers[a].grad_reduce, 10 * us);
  machine.levels[0].verbs[{Verb::all_reduce, 2}] = {{{64, 1 * us}, {96, 2 * us}}, ""};
  expect_seconds(estimate(plan, machine).layers[a].grad_reduce, (8 + 2 * 128. / 96) * us,
                 "proportional beyond the last point");
  Machine others = round_machine();
  others.levels[0].verbs[{Verb::all_reduce, 4}] = {{{128, 3 * us}}, ""};
  expect_seconds(estimate(plan, others).layers[a].grad_reduce, sum_of_two(96 * 4) + sum_of_two(32 * 4),
                 "two ranks, not four");
}

TEST(CostModel, SumsHideBehindTheBackwardThatFollows) {
  const Plan plan = bound(two_convolutions(), all_as("data=2", "N@data").bucket_bytes(1), 2);
  const auto exposed = [&](double overlap, double latency) {
    Machine machine = round_machine(overlap);
    machine.levels[0].latency.value = latency;
    return estimate(plan, machine);
  };
  const auto both = [](const Cost& cost) { return cost.layers[a].grad_reduce + cost.layers[b].grad_reduce; };
  const Cost none = exposed(0, 1 * us);
  expect_seconds(none.parts.grad_reduce, both(none), "no transfer overlaps with computation");
  const Cost all = exposed(1, 1 * us);  // b's sums take 4.6 us, a's backward 10.2 us
  expect_seconds(all.parts.grad_reduce, all.layers[a].grad_reduce, "b's sums are done when a's begin");
  const Cost late = exposed(1, 100 * us);
  expect_seconds(late.parts.grad_reduce, both(late) - late.layers[a].backward_filter.total(),
                 "the backward pass of a hides as much as it can");
  const Cost half = exposed(0.5, 1 * us);
  expect_seconds(half.parts.grad_reduce, both(half) / 2 + half.layers[a].grad_reduce / 2);
}

TEST(CostModel, UpdatesMoveWeightsAndState) {
  const Cost cost = estimate(bound(two_convolutions(), Strategy(), 1), round_machine());
  const double elements = 96 + 32 + 160 + 32;  // 160 is the padded size of b's 4 * 4 * 9 = 144
  expect_seconds(cost.parts.update, elements * 4 * 6e-9,
                 "w and the momentum twice, and the gradient, also by the norm");
  const Cost evaluation = estimate(bound(two_convolutions(), Strategy(), 1, false), round_machine());
  EXPECT_EQ(evaluation.parts.update, 0);
}

TEST(CostModel, MicrobatchesOfTwoSizes) {
  Strategy strategy;
  const Cost cost = estimate(bound(two_convolutions(), strategy.schedule("gpipe", 2), 3), round_machine());
  expect_seconds(cost.layers[a].forward.compute, (convolution(2, 8) + convolution(1, 8)) / 2, "the mean");
  const Cost whole = estimate(bound(two_convolutions(), Strategy(), 2), round_machine()),
             part = estimate(bound(two_convolutions(), Strategy(), 1), round_machine());
  expect_seconds(cost.parts.passes.total(), whole.parts.passes.total() + part.parts.passes.total());
  strategy.schedule("gpipe", 3);
  expect_seconds(estimate(bound(two_convolutions(), strategy, 5), round_machine()).layers[a].forward.compute,
                 (2 * convolution(2, 8) + convolution(1, 8)) / 3, "two of two, one of one");
}

TEST(CostModel, RecomputeRunsForwardOnceMore) {
  Strategy strategy;
  strategy.layer("b", {.recompute = true});
  const Model model = two_convolutions();
  const Cost once = estimate(bound(model, Strategy(), 1), round_machine()),
             twice = estimate(bound(model, strategy, 1), round_machine());
  expect_seconds(twice.layers[b].backward_data.compute,
                 once.layers[b].backward_data.compute + once.layers[b].forward.compute);
  expect_seconds(twice.seconds, once.seconds + once.layers[b].forward.compute);
  const Cost evaluation = estimate(bound(model, strategy, 1, false), round_machine());
  expect_seconds(evaluation.parts.total(), evaluation.seconds, "an evaluation runs no layer twice");
  EXPECT_EQ(evaluation.layers[b].backward_data.total(), 0);
}

// A microbatch's gradients of w are read, and added to a sum in f32 that is read and written.
TEST(CostModel, SumsInF32OverMicrobatchesMoveTheirBytes) {
  const auto layer_of = [](int microbatches, DType dtype) {
    const Plan plan = bind(two_convolutions(), Strategy().schedule("gpipe", microbatches),
                           {.batch = microbatches, .dtype = dtype, .optimizer = {}});
    return estimate(plan, round_machine()).layers[b];
  };
  const double weights = 4 * 4 * 9 + 4;
  expect_seconds(layer_of(2, DType::bf16).backward_filter.compute,
                 layer_of(1, DType::bf16).backward_filter.compute + weights * (2 + 4 + 4) / 1e9);
  expect_seconds(layer_of(2, DType::f32).backward_filter.compute, layer_of(1, DType::f32).backward_filter.compute);
}

// 5 ranks on nodes of 4: the last one is alone. Whichever rank is asked for, its sum takes what the step is charged.
TEST(CostModel, RanksOfUnevenNodesAreChargedOneSum) {
  const Plan plan = bound(two_convolutions(), all_as("data=5", "N@data"), 10);
  const Machine machine = clustered_machine(4, 4);
  const double charged = estimate(plan, machine).layers[a].grad_reduce;
  ASSERT_GT(charged, 0);
  for (std::optional<int> rank : {std::optional<int>(), std::optional(0), std::optional(3), std::optional(4)}) {
    const std::string text = explain_cost(plan, machine, {}, a, rank);
    EXPECT_NE(text.find(fmt::format("{:>12} = 1 all_reduce", fmt::format("{:.3f} us", charged / us))),
              std::string::npos)
        << text;
  }
}

TEST(CostModel, MeasuredTimesGoBeforeRates) {
  const Plan plan = bound(two_convolutions(), Strategy(), 1);
  KernelTimes times("here");
  times.set(local_work(plan.layers[b], 0, plan.workload), {}, {5 * us, 8 * us, 6 * us, 4 * us});
  times.set(update_work(96 + 32 + 160 + 32, plan.workload), {}, {11 * us, 0, 0, 0});
  const Cost cost = estimate(plan, round_machine(), times);
  EXPECT_TRUE(cost.layers[b].measured);
  EXPECT_FALSE(cost.layers[a].measured);
  expect_seconds(cost.layers[b].forward.compute, 5 * us);
  expect_seconds(cost.layers[b].backward_data.compute, 8 * us * 0.6, "both gradients at once take less");
  expect_seconds(cost.layers[b].backward_filter.compute, 8 * us * 0.4);
  expect_seconds(cost.parts.update, 11 * us + 320 * 4 * 1e-9, "and the norm reads the gradient");
  Strategy halves;
  halves.group({"in", "a"}).group({"b", "loss"}).schedule("zb-h1", 1);
  const LayerCost apart = estimate(bound(two_convolutions(), halves, 1), round_machine(), times).layers[b];
  expect_seconds(apart.backward_data.compute, 6 * us, "one after the other");
  expect_seconds(apart.backward_filter.compute, 4 * us);
}

TEST(CostModel, TimesAreThoseOfThePlansOwnLoop) {
  const Plan plan = bound(two_convolutions(), Strategy().schedule("gpipe", 2), 2);
  const std::string conv = local_work(plan.layers[b], 0, plan.workload);
  KernelTimes times("here");
  times.set(conv, {}, {5 * us, 8 * us, 6 * us, 4 * us});
  times.set(conv, {2, 2}, {7 * us, 8 * us, 6 * us, 4 * us});
  times.set(conv, {4, 4}, {9 * us, 8 * us, 6 * us, 4 * us});
  times.set(update_work(96 + 32 + 160 + 32, plan.workload), {}, {11 * us, 0, 0, 0});
  times.set(update_work(96 + 32 + 160 + 32, plan.workload), {2, 2}, {13 * us, 0, 0, 0});
  const Cost cost = estimate(plan, round_machine(), times);
  expect_seconds(cost.layers[b].forward.compute, 7 * us);
  expect_seconds(cost.parts.update, 13 * us + 320 * 4 * 1e-9);
  EXPECT_NE(
      explain_cost(plan, round_machine(), times, b).find("measured on here, with 2 of 2 microbatches in flight: conv"),
      std::string::npos);
}

TEST(CostModel, FartherRanksTakeTheOuterLevel) {
  const auto halo = [](const Machine& machine, const std::string& grid) {
    return estimate(bound(two_convolutions(), all_as(grid, "H@y"), 1), machine).layers[a].forward.halo;
  };
  expect_seconds(halo(clustered_machine(2, 2), "y=4"), (10 + 0.64) * us,
                 "one of the two neighbors is on another node, and the other's message does not wait for it");
  expect_seconds(halo(clustered_machine(2, 2), "a=2 y=2"), 1.064 * us, "y stays within a node, at its end too");
  expect_seconds(halo(clustered_machine(2, 2), "y=2 a=2"), (10 + 64 * 0.01) * us, "two cross, on a link each");
  expect_seconds(halo(clustered_machine(2, 1), "y=2 a=2"), (10 + 64 * 0.02) * us, "two share a link");
  // Six rows on nodes of 2, 4 and 5 ranks: some neighbors are always on another node, also beside the middle.
  for (const int ranks_a_node : {2, 4, 5})
    expect_seconds(halo(clustered_machine(ranks_a_node, 2), "y=6"), (10 + 0.64) * us,
                   fmt::format("{} ranks a node", ranks_a_node));
  Machine thin = clustered_machine(2, 2);
  thin.levels[1].fan_out.value = 4;
  expect_seconds(halo(thin, "y=2 a=2"), (10 + 64 * 0.04) * us, "a quarter of the links can be busy");
  Machine measured = clustered_machine(2, 2);
  measured.levels[1].verbs[{Verb::exchange, 2}] = {{{64, 25 * us}}, ""};
  expect_seconds(halo(measured, "y=2 a=2"), 25 * us);
}

TEST(CostModel, CollectivesShareTheLinksOfANode) {
  const auto sums = [](const std::string& grid, double links) {
    const Plan plan = bound(two_convolutions(), all_as(grid, "N@data"), 2);
    return estimate(plan, clustered_machine(2, links)).layers[a].grad_reduce;
  };
  const double bytes = (96 + 32 + 160 + 32) * 4;  // all in one bucket, with each weight padded as in memory
  expect_seconds(sums("a=2 data=2", 2), sum_of_two(bytes), "within a node");
  expect_seconds(sums("data=2 a=2", 2), sum_of_two(bytes, 10 * us, 1e-8), "between nodes");
  expect_seconds(sums("data=2 a=2", 1), sum_of_two(bytes, 10 * us, 2e-8), "the two groups share a link");
  const Plan all = bound(two_convolutions(), all_as("data=4", "N@data"), 4);
  // Inside a node each rank sums a half, which takes as long again to gather. Between nodes two ranks sum their halves
  // and share a link: two messages of a quarter. A byte is added in 3 ns.
  expect_seconds(estimate(all, clustered_machine(2, 1)).layers[a].grad_reduce,
                 2 * (1 * us + bytes / 2 * 1e-9) + 2 * (10 * us + bytes / 4 * 2e-8) + bytes * (0.5 + 0.25) * 3e-9,
                 "by levels");
}

// Convolution "a" of 8 samples takes as long as its bytes need, and these need as long as there are ranks.
TEST(CostModel, RanksOfASocketShareItsMemory) {
  Machine machine = round_machine();
  machine.arithmetic.value = 1e15;
  machine.socket = {{4, ""}, {2e9, ""}};
  const auto forward = [&](int ranks) {
    const Plan plan = bound(two_convolutions(), all_as(fmt::format("data={}", ranks), "N@data"), 8 * ranks);
    return estimate(plan, machine).layers[a].forward.compute;
  };
  const double bytes = 8 * 64 * (2 + 4) * 4 + 304;
  expect_seconds(forward(1), 1 * us + bytes / 1e9, "a rank alone");
  expect_seconds(forward(2), 1 * us + bytes / 1e9, "2 GB/s for two");
  expect_seconds(forward(3), 1 * us + bytes / (2e9 / 3));
  expect_seconds(forward(4), 1 * us + bytes / 0.5e9);
  expect_seconds(forward(12), 1 * us + bytes / 0.5e9, "three sockets");
  const Plan plan = bound(two_convolutions(), all_as("data=4", "N@data"), 32);
  EXPECT_NE(explain_cost(plan, machine, {}, a).find("4 ranks share 2 GB/s of a socket"), std::string::npos)
      << explain_cost(plan, machine, {}, a);
  // stages are priced for the planner as parts of the whole
  Strategy stages("data=2");
  stages.stages(2).schedule("gpipe", 2).layer("*", {.output = "N@data"});
  const Workload workload{.batch = 32, .optimizer = {}};
  const Machine four = machine.shared_by(4);
  EXPECT_EQ(place_stages(two_convolutions(), stages, workload, machine).print(),
            place_stages(two_convolutions(), stages, workload, four).print());
  EXPECT_EQ(four.memory_bandwidth.value, 0.5e9);
}

// A node of four ranks in a chain of 4, 1 and 2 links of 1 GB/s.
TEST(CostModel, PairsOfRanksHaveTheirOwnLinks) {
  Machine machine = clustered_machine(4, 1);
  machine.memory_bandwidth.value = 1e15;  // adding takes no time
  machine.levels[0].pairs = {{{0, 4, 0, 0}, {4, 0, 1, 0}, {0, 1, 0, 2}, {0, 0, 2, 0}}, ""};
  const Plan rows = bound(two_convolutions(), all_as("y=4", "H@y"), 1);
  // ranks 1 and 2 send a row of 8 x 2 channels to both sides; the single link between them takes longest
  expect_seconds(estimate(rows, machine).layers[a].forward.halo, (1 + 0.064) * us);
  machine.levels[0].pairs = {{{0, 4, 0, 0}, {4, 0, 4, 0}, {0, 4, 0, 2}, {0, 0, 2, 0}}, ""};
  expect_seconds(estimate(rows, machine).layers[a].forward.halo, (1 + 0.032) * us, "two links between 2 and 3");
  // sums are those of a switch with as many links as the ranks can use, of the slowest ranks
  const auto expect_links = [&](const char* grid, const char* output, int links) {
    const Plan plan = bound(two_convolutions(), all_as(grid, output), 8);
    Machine even = machine;
    even.levels[0].pairs = {};
    even.levels[0].bandwidth.value *= links;
    expect_seconds(estimate(plan, machine).layers[a].grad_reduce, estimate(plan, even).layers[a].grad_reduce, grid);
  };
  expect_links("data=2", "N@data", 4);
  expect_links("data=3", "N@data", 4);
  expect_links("data=4", "N@data", 2);
  expect_links("c=2 data=2", "N@data C@c", 2);  // the sums of ranks 2 and 3
  expect_links("data=8", "N@data", 2);
  machine.levels.resize(1);
  expect_links("data=2 c=2", "N@data C@c", 2);  // the sums of ranks 1 and 3, in a machine of one node
}

TEST(CostModel, AMachineHoldsSoManyRanks) {
  Machine machine = round_machine();
  machine.levels[0].ranks = {2, ""};
  EXPECT_GT(estimate(bound(two_convolutions(), all_as("data=2", "N@data"), 4), machine).seconds, 0);
  EXPECT_EQ(
      error_of([&] { estimate(bound(two_convolutions(), all_as("data=4", "N@data"), 4), machine); }),
      "the strategy has 4 ranks, but the machine 'round' holds 2: its last level 'node' has that limit; add a level "
      "for more ranks");
}

}  // namespace partita::test::estimate_test
