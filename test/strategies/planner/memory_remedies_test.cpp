// Checks reports of strategies that exceed a memory limit: the missing bytes are those of the fullest rank, and each
// reported remedy fits when it is applied.
#include "partita/strategies/planner/memory_remedies.hpp"
#include "partita/strategies/plan/memory.hpp"

#include "partita/base/error.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "test/strategies/cost/priced.hpp"

#include <algorithm>

namespace partita::test::memory_remedies_test {
namespace {

constexpr Index batch = 16;

Workload workload() { return {.batch = batch, .dtype = DType::f32, .training = true, .optimizer = {}}; }

std::vector<Remedy> remedies_within(const Strategy& strategy, Index limit) {
  return remedies(two_convolutions(), strategy, workload(), round_machine(), {}, limit);
}

const Remedy* find(const std::vector<Remedy>& all, const std::string& change) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Remedy& r) { return r.change == change; });
  return found == all.end() ? nullptr : &*found;
}

Index held_by(const Strategy& strategy, Index samples = batch) {
  return estimate(bound(two_convolutions(), strategy, samples), round_machine()).memory.total;
}

TEST(MemoryRemedies, OfTheFullestRank) {
  const Plan plan =
      bound(two_convolutions(), Strategy("data=3").layer("*", {.output = "N@data"}), 16);  // 6, 5, 5 samples
  const Cost cost = estimate(plan, round_machine());
  const Index held = peak_memory(plan, 0).total;
  const Holding some = most_held(cost, held - 10);
  EXPECT_EQ(some.rank, 0);
  EXPECT_EQ(some.memory.total, held);
  EXPECT_EQ(some.missing, 10);
  EXPECT_EQ(some.most, MemoryClass::activations);
  EXPECT_EQ(most_held(cost, held).missing, 0);
  EXPECT_EQ(most_held(cost, 0).missing, 0) << "no limit";
  // Stages of different size: "a" and its input hold less than "b", the loss and both their outputs.
  Strategy staged;
  staged.group({"in", "in"}).group({"a", "loss"}).schedule("gpipe", 2);
  const Plan stages = bound(two_convolutions(), staged, batch);
  ASSERT_GT(peak_memory(stages, 1).total, peak_memory(stages, 0).total);
  const Holding second = most_held(estimate(stages, round_machine()), 0);
  EXPECT_EQ(second.rank, 1);
  EXPECT_EQ(second.memory.total, peak_memory(stages, 1).total);
}

// Without partitioning: the input has 2, a and b have 4 planes of 64 positions each, in f32.
TEST(MemoryRemedies, TheSmallestStepThatFits) {
  const Index whole = held_by(Strategy()), half = held_by(Strategy(), batch / 2),
              quarter = held_by(Strategy(), batch / 4);
  ASSERT_GT(whole, half);
  const auto all = remedies_within(Strategy(), half);
  const Remedy* smaller = find(all, "a batch of 8");
  ASSERT_NE(smaller, nullptr);
  EXPECT_EQ(smaller->held, half);
  EXPECT_EQ(smaller->missing, 0);
  EXPECT_EQ(smaller->batch, 8);
  EXPECT_EQ(find(all, "a batch of 4"), nullptr);
  EXPECT_NE(find(remedies_within(Strategy(), half - 1), "a batch of 4"), nullptr);
  const Remedy* ranks = find(all, "the grid \"data=2\"");
  ASSERT_NE(ranks, nullptr);
  EXPECT_EQ(ranks->ranks, 2);
  EXPECT_EQ(ranks->held, held_by(all_as("data=2", "N@data")));
  EXPECT_NE(find(remedies_within(Strategy(), quarter), "the grid \"data=4\""), nullptr);
}

// Ranks that share samples hold the same weights, unless these rest in shards.
TEST(MemoryRemedies, ShardsOfWeights) {
  Model model("deep");
  Value t = model.input("in", {.channels = 64});
  for (int i = 0; i < 8; ++i) t = model.linear(fmt::format("layer{}", i), t, {.features = 64});
  model.mean_squared_error("loss", t);
  Strategy strategy = all_as("data=4", "N@data");
  const Index whole = estimate(bound(model, strategy, batch), round_machine()).memory.total;
  const auto all = remedies(model, strategy, workload(), round_machine(), {}, whole * 10 / 16);
  const Remedy* found = find(all, "weights = \"sharded\"");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->missing, 0);
  EXPECT_EQ(found->held, estimate(bound(model, strategy.shard_weights(), batch), round_machine()).memory.total);
}

TEST(MemoryRemedies, WhatIsNamedFitsWhenItIsDone) {
  const Strategy samples = all_as("data=2", "N@data");
  const Index limit = held_by(all_as("data=2 y=2", "N@data H@y"));
  const auto all = remedies_within(samples, limit);
  ASSERT_FALSE(all.empty());
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(), [](const Remedy& a, const Remedy& b) {
    return a.missing != b.missing ? a.missing < b.missing : a.price() < b.price();
  }));
  Strategy cut = samples;
  cut.schedule("1f1b", 2);
  const Remedy* more = find(all, "2 microbatches (1f1b)");
  ASSERT_NE(more, nullptr);
  EXPECT_EQ(more->held, held_by(cut));
  EXPECT_LE(more->held, limit);
  const Remedy* space = find(all, "the grid \"data=2 y=2\"");
  ASSERT_NE(space, nullptr);
  EXPECT_EQ(space->held, limit);
  EXPECT_EQ(space->missing, 0);
}

// A sharded optimizer alone does not help if weights take the memory. The remedy that misses the limit by least comes
// first.
TEST(MemoryRemedies, NothingFits) {
  const Strategy samples = all_as("data=2", "N@data");
  const auto all = remedies_within(samples, 100);
  ASSERT_FALSE(all.empty());
  for (const auto& each : all) EXPECT_EQ(each.missing, each.held - 100) << each.change;
  EXPECT_TRUE(
      std::is_sorted(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.missing < b.missing; }));
  const Remedy* update = find(all, "optimizer = \"sharded\"");
  ASSERT_NE(update, nullptr);
  Strategy shared = samples;
  EXPECT_EQ(update->held, held_by(shared.optimizer_state(Strategy::OptimizerState::sharded)));
  EXPECT_EQ(find(remedies_within(shared, 100), "optimizer = \"sharded\""), nullptr) << "it is sharded already";
}

// If no stage partition fits the limit, the missing bytes of each remedy are reported.
TEST(MemoryRemedies, StagesThatFitNowhere) {
  const Model lenet = builtin_model("lenet5", {});
  Strategy staged;
  staged.stages(2).schedule("gpipe", 4);
  const auto all = remedies(lenet, staged, workload(), round_machine(), {}, 100);
  const Remedy* more = find(all, "stages = 4");
  ASSERT_NE(more, nullptr);
  EXPECT_EQ(more->ranks, 4);
  EXPECT_GT(more->missing, 0);
}

// A rule with a layer's name must fit that layer: a layer without H keeps its layout.
TEST(MemoryRemedies, NewAxesCutWhatHasTheirDimension) {
  const Model lenet = builtin_model("lenet5", {});
  Strategy named = all_as("data=2", "N@data");
  named.layer("fc1", {.output = "N@data"});
  const auto all = remedies(lenet, named, workload(), round_machine(), {}, 1000);
  EXPECT_TRUE(std::any_of(all.begin(), all.end(),
                          [](const Remedy& r) { return r.change.starts_with("the grid \"data=2 y="); }));
}

/// Expects that the change is found and holds as much as `done`.
void expect_remedy(const Strategy& strategy, const std::string& change, const Strategy& done) {
  const Index held = held_by(done);
  ASSERT_LT(held, held_by(strategy));
  const auto all = remedies_within(strategy, held);
  const Remedy* found = find(all, change);
  ASSERT_NE(found, nullptr) << change;
  EXPECT_EQ(found->held, held) << change;
}

// A dimension that is sharded over another axis already, or named without an axis, appears once in the new layout.
TEST(MemoryRemedies, NewAxesCutWhatIsNamedAlready) {
  expect_remedy(all_as("data=2 rows=2", "N@data H@rows"), "the grid \"data=2 rows=2 y=2\"",
                all_as("data=2 rows=2 y=2", "N@data H@(rows,y)"));
  expect_remedy(all_as("", "N C"), "the grid \"data=2\"", all_as("data=2", "N@data C"));
}

TEST(MemoryRemedies, SamplesAreCutWhereNoAxisDoes) {
  expect_remedy(all_as("y=2", "H@y"), "the grid \"y=2 data=2\"", all_as("y=2 data=2", "N@data H@y"));
}

// Changes that cannot grow any further are left out; the others are found.
TEST(MemoryRemedies, GridsAndStagesHaveAnEnd) {
  std::string axes;
  for (char axis = 'a'; axis <= 'p'; ++axis) axes += fmt::format("{}_={} ", axis, axis == 'a' ? 2 : 1);
  const auto all = remedies_within(all_as(axes, "N@a_"), 100);
  EXPECT_NE(find(all, "optimizer = \"sharded\""), nullptr);
  EXPECT_TRUE(
      std::none_of(all.begin(), all.end(), [](const Remedy& r) { return r.change.find("y=") != std::string::npos; }));
  Strategy staged;
  staged.stages(40000).schedule("gpipe", 4);
  EXPECT_NO_THROW(remedies_within(staged, 100));
}

}  // namespace
}  // namespace partita::test::memory_remedies_test
