// A loss or gradient that is not finite: the run ends with the layer and rank where the first such number appeared, or
// the step is skipped; alike on every rank, and the bytes stay as predicted.
#include "src/comm/threads/threads.hpp"
#include "src/train/trainer/trainer_parts.hpp"
#include "test/support/error_of.hpp"
#include "test/support/need_hdf5.hpp"
#include "test/support/placed.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <mutex>
#include <set>

namespace partita::test::not_finite_test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

Model net() {
  Model m("net");
  auto t = m.input("in", {.channels = 2, .spatial = {4, 4}});
  t = m.conv("conv1", t, {.filters = 3, .kernel = 3, .padding = 1});
  t = m.batch_norm("norm", t);
  t = m.relu("relu", t);
  t = m.linear("fc1", t, {.features = 4});
  t = m.linear("fc2", t, {.features = 2});
  m.softmax_cross_entropy("loss", t);
  return m;
}

/// Twelve samples, of which one may hold a number that is not finite.
class Spoiled final : public Dataset {
 public:
  explicit Spoiled(Index sample, double value = nan) : spoiled_(sample), value_(value) {}
  Shape sample() const override { return {{'C', 2}, {'H', 4}, {'W', 4}}; }
  Index size() const override { return 12; }
  Index classes() const override { return 2; }
  void hold(std::span<const Index>, const Box&) override {}
  void read(Index sample, const Box& box, std::span<double> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<double>((sample * 5 + static_cast<Index>(i) * 3) % 7) / 7 - 0.4;
    if (sample == spoiled_ && box[1].lo <= 0 && box[1].hi > 0) out[0] = value_;
  }
  std::int32_t label(Index sample) const override { return static_cast<std::int32_t>(sample % 2); }

 private:
  Index spoiled_;
  double value_;
};

TrainerOptions options(OnNan on_nan) {
  TrainerOptions o;
  o.check_replicas = 1;
  o.batch = 4;
  o.dtype = DType::f64;
  o.backend = "reference";
  o.epochs = 2;
  o.optimizer.method = Method::adam;
  o.on_nan = on_nan;
  return o;
}

std::vector<Strategy> strategies() {
  Strategy samples("data=2"), sharded("data=3"), rows("y=2"), stages("data=2"), chimera;
  samples.layer("*", {.output = "N@data"});
  sharded.layer("*", {.output = "N@data"}).optimizer_state(Strategy::OptimizerState::sharded);
  rows.layer("*", {.output = "N H@y"});
  stages.layer("*", {.output = "N@data"}).stages(2).schedule("1f1b", 2);
  chimera.stages(2).schedule("chimera", 2);
  const auto workload = Workload{.batch = 4, .optimizer = {}};
  return {Strategy(), samples, sharded, rows, placed(net(), stages, workload), placed(net(), chimera, workload)};
}

/// The messages of all ranks; one if they agree.
std::set<std::string> failures(const Strategy& strategy, const TrainerOptions& options, Dataset& data) {
  std::mutex mutex;
  std::set<std::string> messages;
  run_threads(strategy.ranks(), [&](Communicator& comm) {
    Trainer trainer(net(), strategy, options, comm);
    std::string message = "trained";
    try {
      while (!trainer.finished(data)) trainer.train_epoch(data, {});
    } catch (const RunFailed& error) {
      message = error.what();
    }
    const std::scoped_lock lock(mutex);
    messages.insert(message);
  });
  return messages;
}

TEST(NotFinite, EndsTheRunWithItsPlaceOnEveryRank) {
  Spoiled data(5);
  for (const auto& strategy : strategies()) {
    const auto messages = failures(strategy, options(OnNan::stop), data);
    ASSERT_EQ(messages.size(), 1U);
    EXPECT_EQ(messages.begin()->find("step "), 0U) << *messages.begin();
    EXPECT_NE(messages.begin()->find("the loss is not finite (nan); the first such number appeared in the samples, the "
                                     "output of layer 'in' on rank "),
              std::string::npos)
        << *messages.begin();
  }
}

TEST(NotFinite, WeightsThatOverflowAreNamed) {
  Spoiled data(-1);
  auto wild = options(OnNan::stop);
  wild.optimizer.method = Method::sgd;
  wild.optimizer.rate = 1e200;
  for (const auto& strategy : strategies()) {
    const auto messages = failures(strategy, wild, data);
    ASSERT_EQ(messages.size(), 1U);
    EXPECT_NE(messages.begin()->find(" layer '"), std::string::npos) << *messages.begin();
    EXPECT_NE(messages.begin()->find("try a lower --rate"), std::string::npos) << *messages.begin();
  }
}

TEST(NotFinite, SkippedStepsLeaveEverythingAsItWas) {
  const Strategy serial;
  for (const auto& strategy : strategies())
    run_threads(strategy.ranks(), [&](Communicator& comm) {
      Spoiled data(5);
      Trainer trainer(net(), strategy, options(OnNan::skip), comm);
      EpochReport report;
      Index skipped = 0;
      while (!trainer.finished(data)) {
        std::vector<std::vector<std::byte>> before;
        for (const auto& [name, tensor] :
             TrainerParts::parameters(trainer).named(trainer.plan(), TrainerParts::gradient_grid(trainer), false))
          before.emplace_back(tensor.local.data(), tensor.local.data() + tensor.local.bytes());
        report = trainer.train_epoch(data, [&](Index, Index step, Index, const StepResult& result) {
          std::size_t i = 0;
          for (const auto& [name, tensor] : trainer.weights()) {
            const std::vector<std::byte> now(tensor.local.data(), tensor.local.data() + tensor.local.bytes());
            if (result.skipped) {
              EXPECT_EQ(now, before[i]) << name << " in step " << step;
            }
            before[i++] = now;
          }
        });
        EXPECT_TRUE(std::isfinite(report.loss));
        EXPECT_EQ(report.samples, 12);
        skipped += report.skipped;
      }
      EXPECT_EQ(skipped, 2) << "once an epoch";
      EXPECT_EQ(trainer.skipped_not_finite(), 2);
      EXPECT_TRUE(trainer.predicted() == trainer.measured()) << "rank " << comm.rank();
      EXPECT_EQ(trainer.steps_done(), 6);
    });
}

TEST(NotFinite, SkippingEndsIfNothingElseHappens) {
  auto wild = options(OnNan::skip);
  wild.optimizer.method = Method::sgd;
  wild.optimizer.rate = 1e200;
  wild.epochs = 200;
  Spoiled data(-1);
  const auto messages = failures(strategies()[1], wild, data);
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_NE(messages.begin()->find("as in the 99 steps before"), std::string::npos) << *messages.begin();
}

TEST(NotFinite, SuchWeightsAreNotSaved) {
  PARTITA_NEED_HDF5();
  const auto path = std::filesystem::path(testing::TempDir()) / fmt::format("not-finite-{}.h5", getpid());
  run_threads(2, [&](Communicator& comm) {
    Trainer trainer(net(), strategies()[1], options(OnNan::stop), comm);
    trainer.save(path);
    const auto size = std::filesystem::file_size(path);
    auto weights = trainer.weights();
    if (comm.rank() == 1) weights[0].tensor.local.set(0, nan);
    EXPECT_EQ(error_of([&] { trainer.save(path); }),
              "weight 'conv1/weight' is not finite on rank 1 after 0 steps; it is not saved; try a lower --rate or a "
              "--warm-up");
    EXPECT_EQ(std::filesystem::file_size(path), size);
  });
  std::filesystem::remove(path);
}

TEST(NotFinite, AnEvaluationToo) {
  run_threads(2, [&](Communicator& comm) {
    Spoiled data(3);
    Trainer trainer(net(), strategies()[1], options(OnNan::stop), comm);
    EXPECT_NE(error_of([&] { trainer.evaluate(data, {}); }).find("the loss of an evaluation is not finite (nan)"),
              std::string::npos);
  });
}

/// No samples.
class Empty final : public Dataset {
 public:
  Shape sample() const override { return {{'C', 2}, {'H', 4}, {'W', 4}}; }
  Index size() const override { return 0; }
  Index classes() const override { return 2; }
  void hold(std::span<const Index>, const Box&) override {}
  void read(Index, const Box&, std::span<double>) const override {}
};

TEST(Trainer, AnEmptyDataSetIsRefused) {
  run_threads(2, [&](Communicator& comm) {
    Empty data;
    Trainer trainer(net(), strategies()[1], options(OnNan::stop), comm);
    EXPECT_EQ(error_of([&] { trainer.train_epoch(data, {}); }),
              "the data set for training has no samples; give one with at least one");
    EXPECT_EQ(error_of([&] { trainer.evaluate(data, {}); }),
              "the data set for evaluation has no samples; give one with at least one");
  });
}

/// One weight and one bias per place: y = w x + b. The difference of the loss is `difference` everywhere.
TEST(LossScale, GradientsBelowTheRangeOfF16Survive) {
  constexpr double difference = 0x1p-9, places = 1 << 16;  // the loss's gradients are 2^-24, times 1/2: 0 in f16
  Model m("places");
  const auto t = m.conv("conv", m.input("in", {.channels = 1, .spatial = {256, 256}}), {.filters = 1, .kernel = 1});
  m.mean_squared_error("loss", t);
  for (const DType dtype : {DType::f32, DType::f16})
    run_threads(1, [&](Communicator& comm) {
      TrainerOptions o;
      o.check_replicas = 1;
      o.batch = 4;
      o.dtype = dtype;
      o.backend = "reference";
      o.steps = 1;
      o.optimizer = {.rate = 1, .momentum = 0};
      Trainer trainer(m, Strategy(), o, comm);
      const auto weights = trainer.weights();
      weights[0].tensor.local.set(0, 0);
      const double bias = 0.25;
      weights[1].tensor.local.set(0, bias);
      TrainerParts::parameters(trainer).refresh({});
      const LocalBatch batch = trainer.make_batch(4);
      batch.fill_images(
          [](Index, const Box&, std::span<double> values) { std::fill(values.begin(), values.end(), 1); });
      batch.fill_targets([&](Index, const Box&, std::span<double> values) {
        std::fill(values.begin(), values.end(), bias - difference);
      });
      EXPECT_LT(2 * difference / (4 * places), 0x1p-25) << "half of the smallest number of f16";
      EXPECT_FALSE(trainer.step(batch).skipped);
      EXPECT_NEAR(weights[1].tensor.local.get(0), bias - 2 * difference, 0.01 * difference) << name(dtype);
      EXPECT_EQ(trainer.loss_scale(), dtype == DType::f16 ? 4096 : 1);
    });
}

// With gates of 1 the scores have no other gradient. All places choose the first expert, whose probability is p: the
// loss is balance * 2 p.
TEST(LossScale, ScalesTheLossThatBalancesExperts) {
  constexpr double balance = 0.5, score = 0.25;
  const Experts experts{.experts = 2, .normalized = true, .balance = balance};
  Model m("experts");
  const Value x = m.input("in", {.channels = 1, .length = 4});
  const Value scores = m.linear("router", x, {.features = 2, .per_place = true});
  m.mean_squared_error("loss", m.combine("combine", scores, m.dispatch("dispatch", x, scores, experts), experts));
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    run_threads(1, [&](Communicator& comm) {
      TrainerOptions o;
      o.check_replicas = 1;
      o.batch = 3;
      o.dtype = dtype;
      o.backend = "reference";
      o.steps = 1;
      o.optimizer = {.rate = 1, .momentum = 0};
      Trainer trainer(m, Strategy(), o, comm);
      const auto weights = trainer.weights();
      weights[0].tensor.local.zero({});
      weights[1].tensor.local.set(0, score);
      weights[1].tensor.local.set(1, 0);
      TrainerParts::parameters(trainer).refresh({});
      const LocalBatch batch = trainer.make_batch(3);
      const auto ones = [](Index, const Box&, std::span<double> values) { std::fill(values.begin(), values.end(), 1); };
      batch.fill_images(ones);
      batch.fill_targets(ones);
      EXPECT_FALSE(trainer.step(batch).skipped);
      const double p = 1 / (1 + std::exp(-score)), slope = 2 * balance * p * (1 - p);
      EXPECT_NEAR(weights[1].tensor.local.get(0), score - slope, 0.02 * slope) << name(dtype);
      EXPECT_NEAR(weights[1].tensor.local.get(1), slope, 0.02 * slope) << name(dtype);
      EXPECT_EQ(trainer.loss_scale(), dtype == DType::f16 ? 4096 : 1);
    });
}

TEST(LossScale, FallsWhereGradientsOverflowAndRisesAfterManyGoodSteps) {
  Model m("large");
  const auto t = m.linear("fc", m.input("in", {.channels = 1, .spatial = {}}), {.features = 1});
  m.mean_squared_error("loss", t);
  const auto path = std::filesystem::path(testing::TempDir()) / fmt::format("scale-{}.h5", getpid());
  run_threads(2, [&](Communicator& comm) {
    Strategy strategy("data=2");
    strategy.layer("*", {.output = "N@data"});
    TrainerOptions o;
    o.check_replicas = 1;
    o.batch = 2;
    o.dtype = DType::f16;
    o.backend = "reference";
    o.optimizer = {.rate = 1e-6, .momentum = 0};
    Trainer trainer(m, strategy, o, comm);
    const LocalBatch batch = trainer.make_batch(2);
    batch.fill_images([](Index, const Box&, std::span<double> values) { std::fill(values.begin(), values.end(), 1); });
    batch.fill_targets(
        [](Index, const Box&, std::span<double> values) { std::fill(values.begin(), values.end(), 60); });
    Index steps = 0;
    while (trainer.step(batch).skipped) ++steps;  // dx is about 2 * 60 / 2 * scale
    EXPECT_EQ(trainer.skipped_beyond_f16(), steps);
    EXPECT_GT(steps, 0);
    const double scale = trainer.loss_scale();
    EXPECT_EQ(scale, std::ldexp(4096, -static_cast<int>(steps)));
    EXPECT_EQ(trainer.skipped_not_finite(), 0);
    EXPECT_TRUE(trainer.predicted() == trainer.measured());
    PARTITA_NEED_HDF5();
    trainer.save(path);
    Trainer other(m, strategy, o, comm);
    other.load(path, true);
    EXPECT_EQ(other.loss_scale(), scale);
    EXPECT_EQ(other.skipped_beyond_f16(), steps);
    for (int i = 1; i < 500; ++i) other.step(batch);
    EXPECT_EQ(other.loss_scale(), 2 * scale) << "after 500 good steps, one of them before the checkpoint";
  });
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace partita::test::not_finite_test
