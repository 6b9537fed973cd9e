// A training that stops in the middle of an epoch and continues under another strategy, on another number of ranks,
// gives the same result as a training without interruption.
#include "partita/comm/threads.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/train/run/trainer.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>

namespace partita::test {
namespace {

/// Losses of the steps that run, up to step `stop` of two epochs of four steps. Loads and saves `path` if requested.
std::vector<double> train(const Strategy& strategy, Method method, Index stop, const std::string& path, bool load,
                          std::uint64_t seed = 1) {
  std::vector<double> losses;
  run_threads(strategy.grid().size(), [&](Communicator& comm) {
    const auto data = make_synthetic({{'C', 1}, {'H', 28}, {'W', 28}}, {}, 14, 10, 1, 0);
    TrainerOptions options;
    options.batch = 4;
    options.dtype = DType::f64;
    options.backend = "reference";
    options.epochs = 2;
    options.steps = stop;
    options.seed = seed;
    options.optimizer.method = method;
    options.optimizer.rate = 0.001;
    options.optimizer.epsilon = 1e-3;  // keeps gradients that consist of rounding errors small
    Trainer trainer(fashion_cnn(), strategy, options, std::shared_ptr<Communicator>(std::shared_ptr<void>(), &comm));
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

INSTANTIATE_TEST_SUITE_P(Optimizers, Resume,
                         testing::Values(std::tuple(Method::sgd, Strategy::OptimizerState::replicated),
                                         std::tuple(Method::sgd, Strategy::OptimizerState::sharded),
                                         std::tuple(Method::adamw, Strategy::OptimizerState::sharded),
                                         std::tuple(Method::lamb, Strategy::OptimizerState::sharded)));

}  // namespace
}  // namespace partita::test
