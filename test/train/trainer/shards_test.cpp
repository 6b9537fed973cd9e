// Weights that rest in shards, gathered before each use (ZeRO stage 3): the same results as with replicas, to 1e-9 in
// f64, for each kind of layer that has weights; in bf16 the same bits of weights on all ranks; less memory; and
// checkpoints that replicas go on from.
#include "partita/strategies/plan/memory.hpp"
#include "partita/train/checkpoint/checkpoint.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/train/trainer/trainer_parts.hpp"
#include "test/support/error_of.hpp"
#include "test/support/master.hpp"
#include "test/support/need_hdf5.hpp"

#include <unistd.h>

#include <filesystem>

namespace partita::test::shards_test {
namespace {

/// Images. Neither 5 nor 3 filters or channels are a multiple of 2 or 4 ranks, and a rank of 4 has none of the 3.
Model images() {
  Model m("images");
  Value t = m.input("in", {.channels = 3, .spatial = {6, 6}});
  t = m.conv("conv", t, {.filters = 5, .kernel = 3, .padding = 1});
  t = m.relu("relu", m.batch_norm("norm", t));
  t = m.group_norm("groups", m.conv("narrow", t, {.filters = 3, .kernel = 3, .padding = 1}), {.groups = 3});
  t = m.conv_transpose("up", t, {.filters = 4, .kernel = 2, .stride = 2});
  m.softmax_cross_entropy("loss", m.linear("fc", m.global_average_pool("mean", m.relu("bent", t)), {.features = 7}));
  return m;
}

/// Tokens, and scores that share the table of 11 of them.
Model tokens() {
  Model m("tokens");
  Value t = m.embedding("embedding", m.input("in", {.length = 5, .tokens = true}),
                        {.vocabulary = 11, .features = 6, .deviation = 1});
  t = m.positions("positions", t, {});
  t = m.layer_norm("norm", t, {.per_place = true});
  t = m.add("sum", t, m.gelu("gelu", m.linear("wide", t, {.features = 6, .per_place = true})));
  t = m.linear("scores", m.rms_norm("root", t), {.features = 11, .per_place = true, .tied_to = "embedding"});
  m.softmax_cross_entropy("loss", t);
  return m;
}

TrainerOptions options_of(DType dtype) {
  TrainerOptions options;
  options.batch = 6;
  options.dtype = dtype;
  options.backend = "reference";
  options.check_replicas = 1;
  options.optimizer.method = Method::adamw;
  options.optimizer.rate = 0.02;
  options.optimizer.epsilon = 1e-2;
  options.optimizer.clip_norm = 0.5;
  return options;
}

struct Trained {
  std::vector<double> losses, norms;
  double evaluation = 0;
  std::vector<MemoryPeak> held, predicted;  // by rank
};

/// Trains three steps, evaluates, and compares the traffic and memory of each rank with the plan's.
Trained train(const Model& model, const Strategy& strategy, DType dtype) {
  Trained trained;
  trained.held.resize(static_cast<std::size_t>(strategy.ranks()));
  trained.predicted = trained.held;
  run_threads(strategy.ranks(), [&](Communicator& comm) {
    const TrainerOptions options = options_of(dtype);
    Trainer trainer(model, strategy, options, comm);
    DrawnData data = data_of(model, options.batch);
    const std::vector<Index> samples{0, 1, 2, 3, 4, 5};
    for (int step = 0; step < 3; ++step) {
      const StepResult result = trainer.step(data, samples);
      if (comm.rank() > 0) continue;
      trained.losses.push_back(result.loss);
      trained.norms.push_back(result.gradient_norm);
    }
    const double evaluation = trainer.evaluate(data, {}).loss;
    if (comm.rank() == 0) trained.evaluation = evaluation;
    EXPECT_TRUE(trainer.predicted() == trainer.measured()) << "rank " << comm.rank();
    trained.held[comm.rank()] = trainer.peak_memory();
    trained.predicted[comm.rank()] = trainer.predicted_memory();
  });
  for (std::size_t rank = 0; rank < trained.held.size(); ++rank) {
    EXPECT_EQ(trained.held[rank].total, trained.predicted[rank].total) << "rank " << rank;
    EXPECT_TRUE(trained.held[rank].each == trained.predicted[rank].each) << "rank " << rank;
  }
  return trained;
}

void expect_equal(const Trained& one, const Trained& other, double tolerance, const std::string& what) {
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(one.losses[i], other.losses[i], tolerance) << what << ", step " << i;
    EXPECT_NEAR(one.norms[i], other.norms[i], tolerance) << what << ", norm of step " << i;
  }
  EXPECT_NEAR(one.evaluation, other.evaluation, tolerance) << what;
}

Strategy cut(const std::string& grid, const std::string& output) {
  Strategy strategy(grid);
  return strategy.layer("*", {.output = output});
}

/// The strategies whose weights are sharded, by name.
std::vector<std::pair<std::string, Strategy>> strategies(const std::string& space) {
  const std::string plane = "N@data " + space + "@y";
  Strategy samples = cut("data=4", "N@data"), both = cut("data=2 y=2", plane), micro = cut("data=2", "N@data"),
           recomputed = cut("data=3", "N@data"), halves = cut("data=2", "N@data"), optimizer = cut("data=2 y=2", plane);
  micro.schedule("1f1b", 3);
  halves.schedule("zb-h1", 2);
  recomputed.layer("*o*", {.recompute = true});
  optimizer.optimizer_state(Strategy::OptimizerState::sharded);
  return {{"samples", samples},       {"samples and space", both}, {"microbatches", micro},
          {"recomputed", recomputed}, {"halves", halves},          {"sharded optimizer", optimizer}};
}

Strategy in_shards(Strategy strategy) { return strategy.shard_weights(); }

}  // namespace

TEST(Shards, TrainAsReplicasDo) {
  for (const auto& [model, space] : {std::pair(images(), "H"), std::pair(tokens(), "L")})
    for (const auto& [name, strategy] : strategies(space)) {
      const std::string what = model.name() + ", " + name;
      const Plan plan = bind(model, in_shards(strategy), {.batch = 6, .optimizer = {}});
      for (const auto& layer : plan.layers) EXPECT_EQ(layer.gathers_weights(), layer.trains()) << what << layer.name;
      expect_equal(train(model, in_shards(strategy), DType::f64), train(model, strategy, DType::f64), 1e-9, what);
    }
}

// In bf16 the rounded weights travel, and gradients are summed in f32: only the order of sums differs.
TEST(Shards, TrainInBf16) {
  for (const auto& [name, strategy] : strategies("H"))
    expect_equal(train(images(), in_shards(strategy), DType::bf16), train(images(), strategy, DType::bf16), 2e-2, name);
}

// A rule of a layer says the same for it alone.
TEST(Shards, AreAskedForLayerByLayer) {
  Strategy rules = cut("data=4", "N@data");
  rules.layer("*", {.weights = "F@data"}).layer("n*rm", {.weights = "C@data"}).layer("groups", {.weights = "C@data"});
  const Plan plan = bind(images(), rules, {.batch = 6, .optimizer = {}});
  for (const char* layer : {"conv", "norm", "narrow", "groups", "up", "fc"})
    EXPECT_TRUE(plan.layer(layer).gathers_weights()) << layer;
  expect_equal(train(images(), rules, DType::f64), train(images(), cut("data=4", "N@data"), DType::f64), 1e-9, "rules");
}

// Half of each step's weights are on another stage, and each stage shards its own.
TEST(Shards, WorkOnStages) {
  const Model model = tokens();
  Strategy stages;
  stages.group({"in", "norm", Grid::parse("data=2")}).group({"wide", "loss", Grid::parse("data=2")});
  stages.layer("*", {.output = "N@data"}).schedule("1f1b", 3);
  expect_equal(train(model, in_shards(stages), DType::f64), train(model, stages, DType::f64), 1e-9, "stages");
}

// A model of which a rank can hold 1/1.6 trains on four ranks that hold shards of it, and is refused with replicas.
TEST(Shards, FitWhereReplicasDoNot) {
  Model model("wide");
  Value t = model.input("in", {.channels = 64});
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"})
    t = model.relu(std::string(name) + "_bent", model.linear(name, t, {.features = 64}));
  model.softmax_cross_entropy("loss", model.linear("scores", t, {.features = 5}));
  const Strategy replicas = cut("data=4", "N@data");
  const Plan plan =
      bind(model, replicas, {.batch = 6, .dtype = DType::f64, .optimizer = options_of(DType::f64).optimizer});
  const Index needs = peak_memory(plan, 0).total, limit = needs * 10 / 16;
  const auto limited = [&](const Strategy& strategy) {
    run_threads(4, [&](Communicator& comm) {
      TrainerOptions options = options_of(DType::f64);
      options.memory_limit = limit;
      Trainer trainer(model, strategy, options, comm);
      DrawnData data = data_of(model, options.batch);
      const std::vector<Index> samples{0, 1, 2, 3, 4, 5};
      for (int step = 0; step < 3; ++step) EXPECT_FALSE(trainer.step(data, samples).skipped);
      EXPECT_LE(trainer.peak_memory().total, limit);
    });
  };
  EXPECT_NE(error_of([&] { limited(replicas); }).find("memory limit"), std::string::npos);
  limited(in_shards(replicas));
}

// Replicas go on from the checkpoint of shards, and shards from that of replicas.
TEST(Shards, ShareCheckpointsWithReplicas) {
  PARTITA_NEED_HDF5();
  const auto folder = std::filesystem::path(testing::TempDir()) / fmt::format("partita-shards-{}", getpid());
  std::filesystem::create_directories(folder);
  const Strategy replicas = cut("data=3", "N@data");
  const auto losses = [&](const Strategy& first, const Strategy& second) {
    std::vector<double> all;
    bool begun = false;
    const std::string file = folder / "weights.h5";
    for (const Strategy* strategy : {&first, &second}) {
      run_threads(3, [&](Communicator& comm) {
        Trainer trainer(images(), *strategy, options_of(DType::f64), comm);
        if (begun) trainer.load(file, true);
        DrawnData data = data_of(images(), 6);
        const std::vector<Index> samples{0, 1, 2, 3, 4, 5};
        for (int step = 0; step < 2; ++step)
          if (const double loss = trainer.step(data, samples).loss; comm.rank() == 0) all.push_back(loss);
        trainer.save(file);
      });
      begun = true;
    }
    return all;
  };
  const auto expected = losses(replicas, replicas), there = losses(in_shards(replicas), replicas),
             back = losses(replicas, in_shards(replicas));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(there[i], expected[i], 1e-9) << i;
    EXPECT_NEAR(back[i], expected[i], 1e-9) << i;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace partita::test::shards_test
