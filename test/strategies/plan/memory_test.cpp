// The peak memory of small plans, with numbers worked out by hand. MemoryClass::activations counts images, targets and
// all tensors between layers.
#include "partita/strategies/plan/memory.hpp"

#include "strategies/plan/memory_replay.hpp"
#include "test/strategies/cost/priced.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace partita::test::memory_test {

namespace {

// Bytes of one sample of two_convolutions(): the image, and the output of a, of b, and the target.
constexpr Index image = 2 * 64 * 4, output = 4 * 64 * 4, target = output;
// Bytes of the weights in their bucket: 72, 4, 144 and 4 elements, each a multiple of 32.
constexpr Index weights_a = (96 + 32) * 4, weights_b = (160 + 32) * 4;

Plan of_serial(const std::optional<bool>& recompute, Index batch = 1, bool training = true) {
  Strategy strategy;
  if (recompute) strategy.layer("a", {.recompute = recompute}).layer("b", {.recompute = recompute});
  return bound(two_convolutions(), strategy, batch, training);
}

Index activations(const Plan& plan, int rank = 0) { return peak_memory(plan, rank).each[MemoryClass::activations]; }

}  // namespace

TEST(Memory, WeightsGradientsAndMomentum) {
  const MemoryUse use = peak_memory(of_serial({}), 0).each;
  EXPECT_EQ(use[MemoryClass::weights], weights_a + weights_b);
  EXPECT_EQ(use[MemoryClass::gradients], weights_a + weights_b);
  EXPECT_EQ(use[MemoryClass::optimizer], weights_a + weights_b) << "sgd with momentum has one state";
}

// In the loss's backward: image, target, the outputs of a and b, the loss of one sample, and dx of the loss.
TEST(Memory, ActivationsOfOneRank) {
  EXPECT_EQ(activations(of_serial({})), image + target + 2 * output + 4 + output);
  EXPECT_EQ(activations(of_serial({}, 3)), 3 * (image + target + 2 * output + 4 + output));
}

// In the backward of b: image, target, dy of b, and the outputs of a and b, which ran again.
TEST(Memory, RecomputedLayersKeepNothing) {
  EXPECT_EQ(activations(of_serial(true)), image + target + output + 2 * output);
}

// In the forward of b: image, target, and the outputs of a and b. Nothing is kept for a backward.
TEST(Memory, EvaluationKeepsNothing) {
  const Plan plan = of_serial({}, 1, false);
  EXPECT_EQ(activations(plan), image + target + 2 * output);
  EXPECT_EQ(peak_memory(plan, 0).each[MemoryClass::gradients], 0);
  EXPECT_EQ(peak_memory(plan, 0).each[MemoryClass::optimizer], 0);
}

// Four rows of 8 with one row of the neighbor: x of a has 2 channels, x and dy of b have 4.
TEST(Memory, ExtendedCopiesAreHalos) {
  const Plan plan = bound(two_convolutions(), all_as("y=2", "H@y"), 1);
  for (const int rank : {0, 1})
    EXPECT_EQ(peak_memory(plan, rank).each[MemoryClass::halos], 5 * 8 * (2 + 4 + 4) * 4) << rank;
}

// The first stage holds images and outputs of both microbatches, of one sample each, when it receives the first
// gradient. The second stage, in the first backward of the loss: both inputs, both targets, both outputs
// of b, both losses, and one dx.
TEST(Memory, StagesHoldMicrobatchesInFlight) {
  Strategy strategy;
  strategy.group({"in", "a"}).group({"b", "loss"}).schedule("gpipe", 2);
  const Plan plan = bound(two_convolutions(), strategy, 2);
  EXPECT_EQ(activations(plan, 0), 2 * (image + output) + output);
  EXPECT_EQ(activations(plan, 1), 2 * (output + target + output + 4) + output);
  EXPECT_EQ(peak_memory(plan, 0).each[MemoryClass::weights], weights_a);
  EXPECT_EQ(peak_memory(plan, 1).each[MemoryClass::weights], weights_b);
}

/// A model whose layers are in the groups of a schedule. With `crosses`, the first group's output also goes to the last
/// one, and the convolutions are recomputed.
Plan long_step(ScheduleKind kind, int stages, bool training, bool crosses) {
  constexpr int microbatches = 48;
  const int groups = stages * default_groups_per_stage(kind);
  Model model("chain");
  Value x = model.input("in", {.channels = 2, .spatial = {6}});
  std::optional<Value> first;
  Strategy strategy;
  for (int g = 0; g < groups; ++g) {
    const std::string number = std::to_string(g);
    const bool last = g + 1 == groups;
    x = model.conv("conv" + number, x, {.filters = last ? 2 : 2 + g % 3, .kernel = 3, .padding = 1});
    x = model.tanh("tanh" + number, x);
    if (g == 0) first = x;
    strategy.group({g == 0 ? "in" : "conv" + number, last ? "loss" : "tanh" + number});
  }
  if (crosses) x = model.add("add", x, *first);
  if (crosses) strategy.layer("conv*", {.recompute = true});
  model.mean_squared_error("loss", x);
  strategy.schedule(kind, microbatches);
  return bound(model, strategy, 2 * microbatches + 5, training);  // microbatches of two sizes
}

// Long steps of all schedules: the actions that repeat others change no peak.
TEST(Memory, RepeatedActionsNeedNoReplay) {
  int skipped[2] = {};
  for (const ScheduleKind kind : pipeline_kinds())
    for (const int stages : {2, 3, 4})
      for (const bool training : {true, false})
        for (const bool crosses : {false, true}) {
          if (kind == ScheduleKind::chimera && stages % 2 != 0) continue;  // it needs pairs of stages
          const Plan plan = long_step(kind, stages, training, crosses);
          for (int rank = 0; rank < stages; ++rank) {
            SCOPED_TRACE(fmt::format("{} of {} stages, training {}, rank {}, crosses {}", name(kind), stages, training,
                                     rank, crosses));
            const StepProgram program(plan, rank);
            skipped[crosses] += program.repeated().microbatches;
            const MemoryPeak all = replay_memory(program, rank, {}, {}, true),
                             some = replay_memory(program, rank, {}, {});
            EXPECT_EQ(some.total, all.total);
            EXPECT_EQ(some.each.bytes, all.each.bytes);
            EXPECT_EQ(replay_taken(program, rank, {}, {}), replay_taken(program, rank, {}, {}, true));
          }
        }
  EXPECT_GT(skipped[0], 1000);
  EXPECT_GT(skipped[1], 1000);
}

TEST(Memory, ShardedOptimizerHoldsItsShare) {
  Strategy strategy = all_as("data=2", "N@data");
  strategy.optimizer_state(Strategy::OptimizerState::sharded);
  const MemoryUse use = peak_memory(bound(two_convolutions(), strategy, 2), 1).each;
  EXPECT_EQ(use[MemoryClass::weights], weights_a + weights_b);
  EXPECT_EQ(use[MemoryClass::optimizer], (weights_a + weights_b) / 2);
}

// Weights in f32 with a copy in bf16; gradients in bf16, and in f32 as workspace for their sum.
TEST(Memory, ShortTypesHoldMasters) {
  const Plan plan =
      bind(two_convolutions(), Strategy(), {.batch = 1, .dtype = DType::bf16, .training = true, .optimizer = {}});
  const MemoryUse use = peak_memory(plan, 0).each;
  EXPECT_EQ(use[MemoryClass::weights], weights_a + weights_b + (72 + 4 + 144 + 4) * 2);
  EXPECT_EQ(use[MemoryClass::gradients], (weights_a + weights_b) / 2);
  // The loss, right predictions, whether gradients are finite, and the number of the step.
  const Index results = 4 * size_of(DType::f64);
  EXPECT_EQ(use[MemoryClass::workspace], weights_a + weights_b + results);
  EXPECT_EQ(use[MemoryClass::optimizer], weights_a + weights_b);
}

TEST(Memory, OfOneLayer) {
  const MemoryUse use = layer_memory(of_serial({}), 2, 0);
  EXPECT_EQ(use[MemoryClass::weights], weights_b);
  EXPECT_EQ(use[MemoryClass::gradients], weights_b);
  EXPECT_EQ(use[MemoryClass::activations], output);
  EXPECT_EQ(use[MemoryClass::halos], 0);
}

}  // namespace partita::test::memory_test
