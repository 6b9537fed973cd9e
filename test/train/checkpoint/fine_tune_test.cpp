// A new training from the weights of a checkpoint, with another last layer.
#include "partita/train/checkpoint/checkpoint.hpp"
#include "partita/train/trainer/trainer.hpp"
#include "src/comm/threads/threads.hpp"
#include "test/support/error_of.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace partita::test::fine_tune_test {
namespace {

Model net(Index classes, Index hidden = 6) {
  Model m("net");
  auto t = m.input("in", {.channels = 2, .spatial = {4, 4}});
  t = m.conv("conv", t, {.filters = 3, .kernel = 3, .padding = 1});
  t = m.batch_norm("norm", t);
  t = m.linear("fc1", t, {.features = hidden});
  t = m.linear("fc2", t, {.features = classes});
  m.softmax_cross_entropy("loss", t);
  return m;
}

TrainerOptions options(Method method, std::uint64_t seed) {
  TrainerOptions o;
  o.check_replicas = 1;
  o.batch = 4;
  o.dtype = DType::f64;
  o.backend = "reference";
  o.seed = seed;
  o.optimizer.method = method;
  return o;
}

Strategy channels() {
  Strategy strategy("c=2");
  strategy.layer("fc1", {.output = "N C@c"});
  return strategy;
}

class FineTune : public testing::Test {
 protected:
  void SetUp() override {
    run_threads(1, [&](Communicator& comm) {
      Trainer trainer(net(3), Strategy(), options(Method::sgd, 1), comm);
      const auto data = make_synthetic({{'C', 2}, {'H', 4}, {'W', 4}}, {}, 8, 3, 1, 0);
      trainer.train_epoch(*data, {});
      trainer.save(path_);
    });
  }
  void TearDown() override { std::filesystem::remove(path_); }

  /// The message of an Error with which load_weights() fails for a model, alike on both ranks.
  std::string error(const Model& model, const std::vector<std::string>& skip) const {
    std::string message;
    run_threads(2, [&](Communicator& comm) {
      Strategy strategy("data=2");
      Trainer trainer(model, strategy.layer("*", {.output = "N@data"}), options(Method::adam, 2), comm);
      const CheckpointFile file(path_);
      const auto mine = error_of([&] { trainer.load_weights(file, skip); });
      if (comm.rank() == 0) message = mine;
    });
    return message;
  }

  std::string path_ = std::filesystem::path(testing::TempDir()) / fmt::format("fine-tune-{}.h5", getpid());
};

TEST_F(FineTune, TakesWeightsAloneAndLeavesOutALayer) {
  std::map<std::string, Tensor> first;
  run_threads(1, [&](Communicator& comm) {
    Trainer trainer(net(3), Strategy(), options(Method::sgd, 1), comm);
    trainer.load(path_, false);
    for (const auto& [name, tensor] : trainer.weights()) first[name] = tensor.local;
  });
  run_threads(2, [&](Communicator& comm) {
    auto other = options(Method::adam, 2);
    other.batch = 6;
    Trainer fresh(net(5), channels(), other, comm), trainer(net(5), channels(), other, comm);
    const auto report = trainer.load_weights(CheckpointFile(path_), {"fc2*"});
    EXPECT_EQ(report.left, (std::vector<std::string>{"fc2/weight", "fc2/bias"}));
    EXPECT_EQ(report.unused, (std::vector<std::string>{"fc2/bias", "fc2/weight"}));
    EXPECT_EQ(trainer.steps_done(), 0);
    const auto untouched = fresh.weights();
    std::size_t i = 0;
    for (const auto& [name, tensor] : trainer.weights()) {
      const bool skipped = name.starts_with("fc2/");
      const Tensor expected = tensor.local.like(tensor.local.box());
      copy_box(skipped ? untouched[i].tensor.local : first.at(name), expected, expected.box(), {});
      for (Index k = 0; k < expected.volume(); ++k) EXPECT_EQ(tensor.local.get(k), expected.get(k)) << name;
      ++i;
    }
    const auto data = make_synthetic({{'C', 2}, {'H', 4}, {'W', 4}}, {}, 10, 5, 1, 0);
    trainer.train_epoch(*data, {});
    EXPECT_EQ(trainer.steps_done(), 2);
  });
}

TEST_F(FineTune, RefusesWhatDoesNotFitWithTheRemedy) {
  EXPECT_EQ(error(net(5), {}),
            "the checkpoint " + path_ +
                " has 'fc2/weight' with F=3 C=6, here it is F=5 C=6; add --skip \"fc2\" to give this "
                "layer new weights");
  EXPECT_EQ(error(net(3), {"fx2"}),
            "--skip \"fx2\": the model has no layer with weights of this name (did you mean 'fc2'?); it has 'conv', "
            "'norm', 'fc1', 'fc2'");
  Model m("net");
  auto t = m.input("in", {.channels = 2, .spatial = {4, 4}});
  t = m.linear("fc9", t, {.features = 3});
  m.softmax_cross_entropy("loss", t);
  const auto message = error(m, {});
  EXPECT_NE(message.find("has no tensor 'fc9/weight'"), std::string::npos) << message;
  EXPECT_NE(message.find("add --skip \"fc9\""), std::string::npos) << message;
  EXPECT_EQ(error(net(3), {"fc*"}), "");
}

TEST_F(FineTune, ResumingIsStrictAndSaysHowToFineTune) {
  const auto error = [&](const Model& model, const TrainerOptions& o) {
    std::string message;
    run_threads(1, [&](Communicator& comm) {
      Trainer trainer(model, Strategy(), o, comm);
      message = error_of([&] { trainer.load(path_, true); });
    });
    return message;
  };
  EXPECT_EQ(
      error(net(3), options(Method::adam, 1)),
      "the checkpoint " + path_ +
          " has another optimizer: \"sgd\", here it is \"adam\"; give --optimizer sgd to go on with that training, "
          "or add --new-run to start a new training from its weights");
  EXPECT_NE(error(net(3), options(Method::sgd, 2)).find("give --seed 1 to go on"), std::string::npos);
  EXPECT_NE(error(net(4), options(Method::sgd, 1)).find("add --new-run to start a new training from its weights"),
            std::string::npos);
  auto plain = options(Method::sgd, 1);
  plain.optimizer.momentum = 0;
  EXPECT_NE(error(net(3), plain).find("was saved with momentum 0.9, here it is 0; without momentum a run"),
            std::string::npos);
}

}  // namespace
}  // namespace partita::test::fine_tune_test
