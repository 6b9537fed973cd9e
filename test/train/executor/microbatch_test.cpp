// Microbatches change the memory and the order of a step, not what it computes. Only batch normalization depends on
// them.
#include "partita/strategies/plan/memory.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/train/trainer/trainer_parts.hpp"
#include "test/support/master.hpp"

#include <gtest/gtest.h>

namespace partita::test::microbatch_test {
namespace {

/// Contains dropout, whose masks must not depend on the microbatch, and no batch normalization.
Model mixed() {
  Model m("mixed");
  auto t = m.input("image", {.channels = 3, .spatial = {6, 5}});
  t = m.conv("conv1", t, {.filters = 4, .kernel = 3, .padding = 1});
  t = m.group_norm("norm", t, {.groups = 2});
  t = m.dropout("drop", m.relu("relu", t), {.rate = 0.4});
  t = m.conv("conv2", t, {.filters = 3, .kernel = 1});
  t = m.linear("fc", t, {.features = 4});
  m.softmax_cross_entropy("loss", t);
  return m;
}

/// Experts, of which some drop places, with a loss that balances them.
Model routed() {
  const Experts experts{.experts = 4, .chosen = 2, .capacity = 0.8, .balance = 0.5};
  Model m("routed");
  const Value x = m.linear("first", m.input("in", {.channels = 3, .length = 5}), {.features = 3, .per_place = true});
  const Value scores = m.linear("scores", x, {.features = 4, .per_place = true});
  const Value slots =
      m.linear("experts", m.dispatch("dispatch", x, scores, experts), {.features = 8, .per_place = true, .groups = 4});
  m.softmax_cross_entropy("loss", m.linear("fc", m.combine("combine", scores, slots, experts), {.features = 4}));
  return m;
}

Model normalized() {
  Model m("normalized");
  auto t = m.input("image", {.channels = 3, .spatial = {4}});
  t = m.batch_norm("norm", t, {.momentum = 0.3});
  m.mean_squared_error("loss", t);
  return m;
}

struct Trained {
  std::vector<double> losses;
  std::vector<NamedTensor> weights;
  MemoryPeak memory;
};

/// Trains three steps on one rank.
Trained train(const Model& model, const std::string& kind, int microbatches, Index batch, Index first = 0) {
  Trained trained;
  run_threads(1, [&](Communicator& comm) {
    const Shape scores = model.shapes(1)[model.layers().back().inputs[0]];
    DrawnData data(inputs_of(model), model.layers().back().op->target(scores), 100, scores['C']);
    TrainerOptions options;
    options.check_replicas = 1;
    options.batch = batch;
    options.dtype = DType::f64;
    options.backend = "reference";
    Strategy strategy;
    strategy.schedule(kind, microbatches);
    Trainer trainer(model, strategy, options, comm);
    for (Index step = 0; step < 3; ++step) {
      std::vector<Index> samples;
      for (Index n = 0; n < batch; ++n) samples.push_back(first + n);
      trained.losses.push_back(trainer.step(data, samples).loss);
    }
    trained.weights =
        TrainerParts::parameters(trainer).named(trainer.plan(), TrainerParts::gradient_grid(trainer), false);
    trained.memory = trainer.peak_memory();
    EXPECT_EQ(peak_memory(trainer.plan(), 0).each[MemoryClass::activations],
              trained.memory.each[MemoryClass::activations]);
  });
  return trained;
}

TEST(Microbatches, TrainAsTheWholeBatchDoes) {
  for (const Model& model : {mixed(), routed()}) {
    const Trained whole = train(model, "single", 1, 7);
    for (const char* kind : {"gpipe", "1f1b", "zb-h1", "zb-h2", "zb-1p", "zb-2p"})
      for (const int microbatches : {1, 2, 3, 7, 9}) {
        SCOPED_TRACE(fmt::format("{} by {} of {}", model.name(), kind, microbatches));
        const Trained cut = train(model, kind, microbatches, 7);
        for (std::size_t i = 0; i < whole.losses.size(); ++i) EXPECT_NEAR(cut.losses[i], whole.losses[i], 1e-12);
        for (std::size_t i = 0; i < whole.weights.size(); ++i)
          EXPECT_LT(difference(cut.weights[i].tensor.local, whole.weights[i].tensor.local, 1e-3), 1e-11)
              << whole.weights[i].name;
      }
  }
}

TEST(Microbatches, HoldLessOneAfterTheOther) {
  const auto peak = [](const char* kind, int microbatches) {
    return train(mixed(), kind, microbatches, 8).memory.each[MemoryClass::activations];
  };
  EXPECT_LT(peak("1f1b", 4), peak("single", 1) / 3);
  EXPECT_GT(peak("gpipe", 4), 3 * peak("1f1b", 4));
}

TEST(Microbatches, RunningStatisticsMoveOnceAStepByTheirMean) {
  const auto running = [](const Trained& trained, const char* name) {
    for (const auto& [each, tensor] : trained.weights)
      if (each == std::string("norm/") + name) return tensor.local.get(1);
    return std::numeric_limits<double>::quiet_NaN();
  };
  // Samples 0, 1 and 2 are the larger microbatch, 3 and 4 the smaller. Three equal steps from r cover the fraction m(1
  // + (1-m) + (1-m)^2) of the way.
  const Trained both = train(normalized(), "1f1b", 2, 5), first = train(normalized(), "single", 1, 3, 0),
                second = train(normalized(), "single", 1, 2, 3);
  for (const char* name : {"running_mean", "running_variance"})
    EXPECT_NEAR(running(both, name), 0.6 * running(first, name) + 0.4 * running(second, name), 1e-13) << name;
  EXPECT_GT(std::abs(running(first, "running_mean") - running(second, "running_mean")), 1e-3);
}

}  // namespace
}  // namespace partita::test::microbatch_test
