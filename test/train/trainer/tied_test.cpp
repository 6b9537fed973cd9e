// Scores that share the table of an embedding, under layouts in which one tensor, copies on one stage, or copies on two
// stages hold it.
#include "partita/model/builtin/builtin.hpp"
#include "partita/train/checkpoint/checkpoint.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/train/trainer/trainer_parts.hpp"
#include "test/support/master.hpp"
#include "test/support/need_hdf5.hpp"

#include <unistd.h>

#include <filesystem>

namespace partita::test::tied_test {
namespace {

/// 11 tokens, which no number of ranks divides evenly.
Model small() {
  return builtin_model(
      "gpt", {.transformer = {.layers = 2, .hidden = 6, .heads = 2, .sequence = 5, .vocabulary = 11, .tied = true}});
}

Strategy stages(const std::string& kind, const std::string& grid = "") {
  Strategy s;
  s.group({"tokens", "block1_add1", Grid::parse(grid)}).group({"block1_norm2", "loss", Grid::parse(grid)});
  return s.schedule(kind, 2);
}

std::vector<std::pair<std::string, Strategy>> strategies() {
  Strategy cut("t=3"), apart("a=2"), folded;
  cut.layer("embedding", {.weights = "V@t"}).layer("scores", {.output = "C@t"});
  apart.layer("*", {.output = "N@a"}).layer("embedding", {.output = ""});
  folded.group({"tokens", "positions"}).group({"block1_norm1", "block1_add1"});
  folded.group({"block1_norm2", "norm"}).group({"scores", "loss"}).schedule("zb-v", 2);
  Strategy sharded = stages("1f1b", "a=2");
  sharded.layer("*", {.output = "N@a"}).optimizer_state(Strategy::OptimizerState::sharded);
  Strategy vocabulary = stages("gpipe", "t=3");
  vocabulary.layer("embedding", {.weights = "V@t"}).layer("scores", {.output = "C@t"});
  return {{"one rank", Strategy()},        {"cut", cut},
          {"copies on a rank", apart},     {"stages", stages("1f1b")},
          {"sharded stages", sharded},     {"cut stages", vocabulary},
          {"replicas", stages("chimera")}, {"folded", folded}};
}

struct Trained {
  double loss = 0, norm = 0;
};

/// Trains a step in f64, from weights that `path` holds unless it is the first one, and saves them there.
Trained train(const Strategy& strategy, const std::string& path, bool first) {
  Trained trained;
  const Model model = small();
  run_threads(strategy.ranks(), [&](Communicator& comm) {
    TrainerOptions options;
    options.batch = 5;
    options.dtype = DType::f64;
    options.backend = "reference";
    options.check_replicas = 1;
    options.optimizer.method = Method::adamw;
    options.optimizer.rate = 0.05;
    options.optimizer.weight_decay = 0.1;
    options.optimizer.epsilon = 1e-3;
    options.optimizer.clip_norm = 0.5;
    DrawnData data = data_of(model, options.batch);
    Trainer trainer(model, strategy, options, comm);
    if (!first) trainer.load(path, true);
    const std::vector<Index> samples{0, 1, 2, 3, 4};
    const StepResult result = trainer.step(data, samples);
    if (comm.rank() == 0) trained = {result.loss, result.gradient_norm};
    trainer.save(path);
  });
  return trained;
}

}  // namespace

// A checkpoint holds the table once, with its state, and any layout goes on from it.
TEST(TiedTraining, AnyLayoutGoesOnFromAnother) {
  PARTITA_NEED_HDF5();
  const auto folder = std::filesystem::path(testing::TempDir()) / fmt::format("partita-tied-{}", getpid());
  std::filesystem::create_directories(folder);
  const std::string alone = folder / "alone.h5", moving = folder / "moving.h5";
  bool first = true;
  for (const auto& [name, strategy] : strategies()) {
    const Trained one = train(Strategy(), alone, first), here = train(strategy, moving, first);
    EXPECT_NEAR(here.loss, one.loss, 1e-9) << name;
    EXPECT_NEAR(here.norm, one.norm, 1e-9) << name << ": the table counts once";
    first = false;
    const CheckpointFile file(moving);
    EXPECT_TRUE(file.tensors().contains("embedding/table")) << name;
    EXPECT_FALSE(file.tensors().contains("scores/table")) << name;
  }
  std::filesystem::remove_all(folder);
}

/// Two tables, and two layers tied to them that stand in the same order as the embeddings or in the other one.
Model with_two_tables(bool crossed) {
  Model m("two tables");
  const Value tokens = m.input("tokens", {.length = 3, .tokens = true});
  const Value a = m.embedding("a", tokens, {.vocabulary = 7, .features = 4, .deviation = 1}),
              b = m.embedding("b", tokens, {.vocabulary = 7, .features = 4, .deviation = 1});
  const auto tied = [&](const char* name, const Value& x, const char* table) {
    return m.linear(name, x, {.features = 7, .bias = false, .per_place = true, .tied_to = table});
  };
  const Value first = tied("first", m.add("sum", a, b), crossed ? "b" : "a");
  const Value between = m.linear("between", first, {.features = 4, .per_place = true});
  m.softmax_cross_entropy("loss", tied("second", between, crossed ? "a" : "b"));
  return m;
}

// Both stages add the copies of both tables in one order, else each waits for the other.
TEST(TiedTraining, TwoTablesDoNotWaitForEachOther) {
  for (const bool crossed : {false, true}) {
    const Model model = with_two_tables(crossed);
    Strategy two;
    two.group({"tokens", "sum"}).group({"first", "loss"}).schedule("1f1b", 2);
    std::vector<double> losses;
    for (const Strategy& strategy : {Strategy(), two}) {
      double loss = 0;
      run_threads(strategy.ranks(), [&](Communicator& comm) {
        TrainerOptions options;
        options.batch = 4;
        options.dtype = DType::f64;
        options.backend = "reference";
        options.check_replicas = 1;
        Trainer trainer(model, strategy, options, comm);
        DrawnData data = data_of(model, options.batch);
        const std::vector<Index> samples{0, 1, 2, 3};
        for (int step = 0; step < 3; ++step) {
          const StepResult result = trainer.step(data, samples);
          if (comm.rank() == 0) loss = result.loss;
        }
      });
      losses.push_back(loss);
    }
    EXPECT_NEAR(losses[1], losses[0], 1e-9) << (crossed ? "crossed" : "in order");
  }
}

// The check of replicas holds the copies of both stages against each other.
TEST(TiedTraining, ADifferenceOfCopiesIsNamed) {
  const Model model = small();
  std::string message = "no error";
  run_threads(2, [&](Communicator& comm) {
    TrainerOptions options;
    options.batch = 4;
    options.check_replicas = 2;
    Trainer trainer(model, stages("1f1b"), options, comm);
    DrawnData data = data_of(model, options.batch);
    const std::vector<Index> samples{0, 1, 2, 3};
    trainer.step(data, samples);
    if (comm.rank() == 1)
      for (const auto& each :
           TrainerParts::parameters(trainer).named(trainer.plan(), TrainerParts::gradient_grid(trainer), false))
        if (each.name == "embedding/table") each.tensor.local.data()[2] ^= std::byte{64};
    try {
      trainer.step(data, samples);
    } catch (const RunFailed& error) {
      if (comm.rank() == 1) message = error.what();
    }
  });
  EXPECT_NE(message.find("ranks 0 and 1 hold different bits of '"), std::string::npos) << message;
}

}  // namespace partita::test::tied_test
