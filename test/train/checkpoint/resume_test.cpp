// A training that stops in the middle of an epoch and continues under another strategy, on another number of ranks,
// gives the same result as a training without interruption.
#include "partita/model/builtin/builtin.hpp"
#include "partita/train/trainer/trainer.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/train/checkpoint/run_record.hpp"
#include "test/support/error_of.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace partita::test::resume_test {
namespace {

/// Losses of the steps that run, up to step `stop` of two epochs of four steps. Loads and saves `path` if requested.
std::vector<double> train(const Strategy& strategy, Method method, Index stop, const std::string& path, bool load,
                          std::uint64_t seed = 1) {
  std::vector<double> losses;
  run_threads(strategy.grid().size(), [&](Communicator& comm) {
    const auto data = make_synthetic({{'C', 1}, {'H', 28}, {'W', 28}}, {}, 14, 10, 1, 0);
    TrainerOptions options;
    options.check_replicas = 1;
    options.batch = 4;
    options.dtype = DType::f64;
    options.backend = "reference";
    options.epochs = 2;
    options.steps = stop;
    options.seed = seed;
    options.optimizer.method = method;
    options.optimizer.rate = 0.001;
    options.optimizer.epsilon = 1e-3;  // keeps gradients that consist of rounding errors small
    Trainer trainer(fashion_cnn(), strategy, options, comm);
    if (load) trainer.load(path, true);
    while (!trainer.finished(*data))
      trainer.train_epoch(*data, [&](Index, Index, Index, const StepResult& result) {
        if (comm.rank() == 0) losses.push_back(result.loss);
      });
    trainer.save(path);
  });
  return losses;
}

Strategy rows(const char* grid, const char* output) {
  Strategy strategy(grid);
  strategy.layer("*", {.output = output});
  return strategy;
}

class Resume : public testing::TestWithParam<std::tuple<Method, Strategy::OptimizerState>> {};

TEST_P(Resume, GoesOnAsIfNeverCutOff) {
  const auto [method, update] = GetParam();
  const auto folder = std::filesystem::path(testing::TempDir()) / fmt::format("partita-resume-{}", getpid());
  std::filesystem::create_directories(folder);
  const std::string path = folder / "w.h5";
  const auto whole = train(Strategy(), method, 0, path, false);
  auto parts = train(rows("a=2", "N@a").optimizer_state(update), method, 5, path, false);
  ASSERT_EQ(parts.size(), 5U);
  EXPECT_THROW(train(Strategy(), method, 0, path, true, 2), Error) << "another seed";
  for (const double loss : train(rows("y=3", "H@y").optimizer_state(update), method, 0, path, true))
    parts.push_back(loss);
  ASSERT_EQ(parts.size(), whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(parts[i], whole[i], 1e-8 * whole[i]) << "step " << i;
  std::filesystem::remove_all(folder);
}

/// The weights after a training of two epochs of four steps on one rank, or after its part up to step `stop`. `load`
/// and `save` are paths, or "".
std::map<std::string, Tensor> weights_of(const Strategy& strategy, const Optimizer& optimizer, Index stop,
                                         const std::string& load, const std::string& save) {
  std::map<std::string, Tensor> weights;
  run_threads(strategy.ranks(), [&](Communicator& comm) {
    const auto data = make_synthetic({{'C', 1}, {'H', 9}, {'W', 7}}, {}, 14, 3, 1, 0);
    Model m("small");
    auto t =
        m.conv("conv", m.input("in", {.channels = 1, .spatial = {9, 7}}), {.filters = 3, .kernel = 3, .padding = 1});
    t = m.dropout("drop", m.relu("relu", m.batch_norm("norm", t)), {.rate = 0.2});
    m.softmax_cross_entropy("loss", m.linear("fc", t, {.features = 3}));
    TrainerOptions options;
    options.check_replicas = 1;
    options.batch = 4;
    options.dtype = DType::f64;
    options.backend = "reference";
    options.epochs = 2;
    options.optimizer = optimizer;
    options.augmentation.shift = 1;
    Trainer trainer(m, strategy, options, comm);
    if (!load.empty()) trainer.load(load, true);
    while (!trainer.finished(*data) && (stop == 0 || trainer.steps_done() < stop)) {
      const Index before = trainer.steps_done() % 4;
      const EpochReport report = trainer.train_epoch(*data, [&](Index, Index, Index, const StepResult&) {
        if (trainer.steps_done() == stop) trainer.stop();
      });
      EXPECT_EQ(report.first, before);
      EXPECT_EQ(report.all, 4);
    }
    if (!save.empty()) trainer.save(save);
    if (comm.rank() == 0 && strategy.ranks() == 1)
      for (const auto& [name, tensor] : trainer.weights()) weights[name] = tensor.local;
  });
  return weights;
}

// The rate's decay spans the whole training, in every part of it. An interrupted part ends in the middle of an epoch
// (step 5 or 3) and at its end (step 4), and the next part runs on another grid.
TEST(Schedule, EveryDecayGoesOnWhereItWas) {
  const std::string path = std::filesystem::path(testing::TempDir()) / fmt::format("decay-{}.h5", getpid());
  for (const Decay decay : {Decay::none, Decay::linear, Decay::cosine})
    for (const Method method : {Method::sgd, Method::adam}) {
      const Optimizer optimizer{.method = method, .rate = 0.01, .epsilon = 1e-3, .warm_up = 2, .decay = decay};
      const auto whole = weights_of(Strategy(), optimizer, 0, "", "");
      for (const Index stop : {3, 4, 5}) {
        weights_of(rows("a=2", "N@a"), optimizer, stop, "", path);
        const auto parts = weights_of(Strategy(), optimizer, 0, path, "");
        ASSERT_EQ(parts.size(), whole.size());
        for (const auto& [name, tensor] : whole)
          for (Index i = 0; i < tensor.volume(); ++i)
            ASSERT_NEAR(parts.at(name).get(i), tensor.get(i), 1e-12)
                << name << ", decay " << static_cast<int>(decay) << ", " << partita::name(method) << ", stop " << stop;
      }
    }
  std::filesystem::remove(path);
}

TEST(Schedule, NoStepIsTrainedAfterTheDecayWithoutAWord) {
  const std::string path = std::filesystem::path(testing::TempDir()) / fmt::format("longer-{}.h5", getpid());
  const Optimizer optimizer{.rate = 0.01, .decay = Decay::cosine};
  run_threads(1, [&](Communicator& comm) {
    const auto data = make_synthetic({{'C', 1}, {'H', 28}, {'W', 28}}, {}, 14, 10, 1, 0);
    TrainerOptions options;
    options.check_replicas = 1;
    options.batch = 4;
    options.steps = 4;
    options.optimizer = optimizer;
    options.kernel_folder = "";
    Trainer first(fashion_cnn(), Strategy(), options, comm);
    first.train_epoch(*data, {});
    first.save(path);
    options.epochs = 2;
    options.steps = 0;
    Trainer second(fashion_cnn(), Strategy(), options, comm);
    second.load(path, true);
    EXPECT_EQ(
        error_of([&] { second.train_epoch(*data, {}); }),
        "the learning rate falls to 0 at step 4, where its decay ends in the checkpoint, but 8 steps are asked for; "
        "give --decay-steps 8 to stretch the decay over all steps, or --decay none");
    options.decay_steps = 8;
    Trainer third(fashion_cnn(), Strategy(), options, comm);
    third.load(path, true);
    EXPECT_EQ(error_of([&] { third.train_epoch(*data, {}); }), "");
  });
  std::filesystem::remove(path);
}

TEST(RunRecord, HoldsAllThatShapesATraining) {
  RunRecord record;
  record.model = "m\n";
  record.version = "0";
  record.step = 7;
  record.decay_steps = 40;
  record.options.batch = 6;
  record.options.optimizer = {
      .method = Method::adam, .rate = 0.1 + 0.2, .beta1 = 0.8, .warm_up = 3, .decay = Decay::linear};
  record.options.augmentation = {.shift = 2, .flip = true};
  record.options.dtype = DType::bf16;
  record.options.data = "hdf5";
  record.options.epochs = 5;
  const std::string path = std::filesystem::path(testing::TempDir()) / fmt::format("record-{}.h5", getpid());
  run_threads(1, [&](Communicator& comm) { save_checkpoint(path, {}, record.attributes(), comm); });
  const RunRecord read{CheckpointFile(path)};
  std::filesystem::remove(path);
  EXPECT_EQ(read.attributes(), record.attributes());
  EXPECT_EQ(read.options.optimizer.rate, 0.1 + 0.2);

  TrainerOptions options;
  options.check_replicas = 1;
  options.batch = 6;
  options.optimizer = {.method = Method::adam, .rate = 0.5};
  options.dtype = DType::f32;
  const auto notes = follow(read, {"rate"}, options);
  EXPECT_EQ(options.optimizer.rate, 0.5) << "given";
  EXPECT_EQ(options.optimizer.beta1, 0.8);
  EXPECT_EQ(options.optimizer.warm_up, 3);
  EXPECT_EQ(options.optimizer.decay, Decay::linear);
  EXPECT_EQ(options.epochs, 5);
  EXPECT_TRUE(options.augmentation.flip);
  EXPECT_EQ(options.dtype, DType::f32);
  const auto has = [&](const std::string& line) { return std::count(notes.begin(), notes.end(), line) == 1; };
  EXPECT_TRUE(
      has("--rate: the checkpoint has 0.30000000000000004, this command line 0.5; training goes on with 0.5, "
          "because this command line says so"))
      << notes[0];
  EXPECT_TRUE(
      has("--epochs: the checkpoint has 5, this command line 1; training goes on with 5, as without interruption"));
  EXPECT_TRUE(has("--dtype: the checkpoint has bf16, this command line f32; results differ by rounding"));
  EXPECT_EQ(notes.size(), 8U) << "rate, beta1, warm-up, decay, epochs, shift, flip and dtype";
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Resume,
                         testing::Values(std::tuple(Method::sgd, Strategy::OptimizerState::replicated),
                                         std::tuple(Method::sgd, Strategy::OptimizerState::sharded),
                                         std::tuple(Method::adamw, Strategy::OptimizerState::sharded),
                                         std::tuple(Method::lamb, Strategy::OptimizerState::sharded)));

}  // namespace
}  // namespace partita::test::resume_test
