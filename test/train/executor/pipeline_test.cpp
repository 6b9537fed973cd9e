// Every schedule with stages on their own grids trains like one rank with the same microbatches. Transfers and memory
// are as the plan says.
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/schedule/generators.hpp"
#include "partita/strategies/schedule/validate.hpp"
#include "src/comm/delaying.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/system/clock.hpp"
#include "src/train/trainer/trainer_parts.hpp"
#include "test/support/cases.hpp"
#include "test/support/error_of.hpp"
#include "test/support/master.hpp"
#include "test/support/need_hdf5.hpp"
#include "test/support/placed.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>

namespace partita::test::pipeline_test {
namespace {

/// Eight layers or more in a chain; batch normalization and dropout depend on the microbatch.
Model chain() {
  Model m("chain");
  auto t = m.input("in", {.channels = 2, .spatial = {5, 3}});
  t = m.conv("c1", t, {.filters = 4, .kernel = 3, .padding = 1});
  t = m.batch_norm("n1", t);
  t = m.relu("r1", t);
  t = m.conv("c2", t, {.filters = 3, .kernel = 3, .stride = {2, 1}, .padding = 1});
  t = m.dropout("d1", t, {.rate = 0.3});
  t = m.tanh("r2", t);
  t = m.linear("f1", t, {.features = 5, .activation = Activation{Activation::Kind::gelu}});
  t = m.linear("f2", t, {.features = 3});
  m.softmax_cross_entropy("loss", t);
  return m;
}

/// Outputs that skip one, two and six stages; one is read twice on one stage.
Model skips() {
  Model m("skips");
  const auto in = m.input("in", {.channels = 2, .spatial = {6, 4}});
  const auto a = m.conv("a", in, {.filters = 3, .kernel = 3, .padding = 1});
  const auto down = m.max_pool("down", a, {.window = 2});
  const auto b = m.conv("b", down, {.filters = 3, .kernel = 3, .padding = 1});
  const auto c = m.add("c", b, m.relu("r", b));
  const auto up = m.upsample("up", m.add("c2", c, down), {.scale = 2});
  const auto both = m.concatenate("both", {up, a});
  const auto d = m.conv("d", both, {.filters = 2, .kernel = 1});
  m.mean_squared_error("loss", m.add("e", d, in));
  return m;
}

/// Eighteen small layers; some outputs are read again later.
Model deep() {
  Model m("deep");
  const auto in = m.input("in", {.channels = 5, .spatial = {}});
  std::vector<Value> t{m.linear("first", in, {.features = 4})};
  for (int i = 0; i < 14; ++i) {
    const std::string name = fmt::format("l{}", i);
    const auto at = static_cast<std::size_t>(i);
    t.push_back(i % 3 == 2   ? m.add(name, t.back(), t[at / 2])
                : i % 3 == 1 ? m.tanh(name, t.back())
                             : m.linear(name, t.back(), {.features = 4}));
  }
  m.mean_squared_error("loss", m.batch_norm("norm", t.back()));
  return m;
}

/// Stages of about equal numbers of layers, on these grids in turn, with the kind's number of groups per stage.
Strategy staged(const Model& model, int stages, const std::vector<std::string>& grids, const std::string& kind,
                int microbatches) {
  Strategy s;
  const auto& layers = model.layers();
  const int groups = stages * default_groups_per_stage(parse_schedule_kind(kind));
  const auto counts = balanced_counts(static_cast<Index>(layers.size()), groups);
  std::size_t first = 0;
  for (int group = 0; group < groups; ++group) {
    const std::size_t last = first + static_cast<std::size_t>(counts[group]) - 1;
    const auto stage = static_cast<std::size_t>(stage_of_group(parse_schedule_kind(kind), group, stages));
    const std::size_t alike =  // for Chimera: stages that mirror each other
        kind == "chimera" ? std::min(stage, static_cast<std::size_t>(stages) - 1 - stage) : stage;
    s.group({layers[first].name, layers[last].name, Grid::parse(grids[alike % grids.size()])});
    first = last + 1;
  }
  s.schedule(kind, microbatches);
  return s;
}

void expect_serial_result(const Model& model, const Strategy& strategy, Index batch) {
  RandomCase drawn(1);
  drawn.model = model;
  drawn.strategy = strategy;
  drawn.batch = batch;
  drawn.optimizer = {};
  SCOPED_TRACE(drawn.print());
  const SerialResult serial = run_serially(drawn);
  const Plan plan = bind(model, strategy, workload_of(drawn));
  std::vector<RankResult> ranks(static_cast<std::size_t>(strategy.ranks()));
  run_threads(strategy.ranks(), [&](Communicator& comm) {
    ranks[comm.rank()] = run_rank(drawn, strategy, comm, true, Weights::drawn, Outputs::released);
  });
  std::size_t weights = 0;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    auto& result = ranks[rank];
    EXPECT_FALSE(expect_near_serial(drawn, result, serial));
    expect_predicted(plan, rank, result);
    expect_predicted_memory(plan, rank, result);
    if (plan.rank_in_stage(rank) == 0) weights += result.weights.size();
  }
  EXPECT_EQ(weights, static_cast<std::size_t>(plan.replicas()) * serial.run.weights.size())
      << "every weight of a replica is on one stage";
}

/// The entries of a layout whose axis some grid has. An axis that no grid has would be refused.
std::string axes_of(const std::vector<std::string>& grids, const std::string& layout) {
  std::string text;
  std::istringstream words(layout);
  for (std::string word; words >> word;)
    for (const auto& grid : grids)
      if (grid.find(word.substr(2) + "=") != std::string::npos) {
        text += word + " ";
        break;
      }
  return text;
}

const std::vector<std::string> kinds{"gpipe",   "1f1b",        "zb-h1", "zb-h2",  "zb-1p", "zb-2p",
                                     "chimera", "interleaved", "zb-v",  "v-half", "v-min", "dualpipe-v"};

TEST(Pipeline, EveryScheduleOnEveryNumberOfStages) {
  for (const auto& kind : kinds)
    for (const int stages : {2, 3, 4, 8})
      for (const int microbatches : {1, 2, 3, 4, 8, 13}) {
        if (HasFailure()) return;
        if (kind == "chimera" && stages % 2 != 0) continue;  // refused: ChimeraNeedsStagesInPairs
        if (short_run() && microbatches > 2 && microbatches < 13) continue;
        const bool few = stages * default_groups_per_stage(parse_schedule_kind(kind)) <= 12;
        const Model model = few && microbatches % 2 == 0 ? skips() : deep();
        expect_serial_result(model, staged(model, stages, {""}, kind, microbatches), 13);
      }
}

// The addition forwards one gradient to both its inputs, which are of an earlier group of its stage. To that of "l"
// comes another one from the other stage.
TEST(Pipeline, WhatArrivesIsNotAddedToAGradientThatAnotherLayerHolds) {
  Model m("handed-on");
  const auto in = m.input("in", {.channels = 5, .spatial = {}});
  const auto k = m.linear("k", in, {.features = 4}), l = m.linear("l", in, {.features = 4});
  const auto mid = m.linear("mid", l, {.features = 4}), sum = m.add("sum", k, l);
  m.mean_squared_error("loss", m.add("out", sum, mid));
  for (const std::string kind : {"interleaved", "zb-v", "dualpipe-v"}) {
    Strategy strategy;
    strategy.group({"in", "l"}).group({"mid", "mid"}).group({"sum", "sum"}).group({"out", "loss"}).schedule(kind, 4);
    expect_serial_result(m, strategy, 8);
  }
}

TEST(Pipeline, ChimeraNeedsStagesInPairs) {
  const Model model = chain();
  const Workload workload{.batch = 4, .dtype = DType::f64, .training = true, .optimizer = {}};
  EXPECT_EQ(error_of([&] { bind(model, staged(model, 3, {""}, "chimera", 2), workload); }),
            "the schedule 'chimera' needs an even number of stages, not 3: only then do the two directions fill each "
            "other's bubbles");
  Strategy unlike;
  unlike.group({"in", "d1", Grid::parse("data=2")}).group({"r2", "loss", Grid::parse("y=2")}).schedule("chimera", 2);
  EXPECT_EQ(error_of([&] { bind(model, unlike, workload); }),
            "the schedule 'chimera' keeps the layers of stage 0 on stage 1 too, but their grids are \"data=2\" and "
            "\"y=2\"; give both the same grid");
}

TEST(Pipeline, StagesOnUnequalGrids) {
  using Grids = std::vector<std::string>;
  for (const auto& grids :
       some<Grids>({{"data=2 y=2", "c=2", "data=3"}, {"data=2", "y=2"}, {"y=2 x=2", "c=4"}, {"data=3", ""}}))
    for (const Model& model : {chain(), skips()})
      for (const std::string kind : {"1f1b", "zb-h1", "gpipe", "interleaved", "zb-v", "chimera"}) {
        if (HasFailure()) return;
        const auto different = static_cast<int>(std::max<std::size_t>(grids.size(), 2));
        Strategy strategy = staged(model, kind == "chimera" ? 4 : different, grids, kind, 3);
        strategy.layer("*", {.output = axes_of(grids, "N@data H@y W@x")});
        if (model.name() == "chain") strategy.layer("c?", {.output = axes_of(grids, "N@data C@c H@y W@x")});
        expect_serial_result(model, strategy, 7);
        strategy.optimizer_state(Strategy::OptimizerState::sharded);
        strategy.layer("r*", {.recompute = true});
        expect_serial_result(model, strategy, 7);
        strategy.layer("*", {.recompute = true});
        expect_serial_result(model, strategy, 7);
      }
}

struct Epoch {
  double loss = 0, evaluation = 0;
  std::vector<std::vector<NamedTensor>> weights;  // by rank
};

/// One epoch of two batches of seven samples and a last batch of one sample, then an evaluation.
Epoch run_epoch(const Model& model, const Strategy& strategy) {
  Epoch epoch;
  epoch.weights.resize(static_cast<std::size_t>(strategy.ranks()));
  run_threads(strategy.ranks(), [&](Communicator& comm) {
    const Shape scores = model.shapes(1)[model.layers().back().inputs[0]];
    DrawnData data(inputs_of(model), model.layers().back().op->target(scores), 15, scores['C']);
    TrainerOptions options;
    options.check_replicas = 1;
    options.batch = 7;
    options.dtype = DType::f64;
    options.backend = "reference";
    Trainer trainer(model, strategy, options, comm);
    const double loss = trainer.train_epoch(data, {}).loss, evaluation = trainer.evaluate(data, {}).loss;
    EXPECT_TRUE(trainer.predicted() == trainer.measured()) << "on rank " << comm.rank();
    epoch.weights[comm.rank()] =
        TrainerParts::parameters(trainer).named(trainer.plan(), TrainerParts::gradient_grid(trainer), false);
    if (comm.rank() == 0) epoch.loss = loss, epoch.evaluation = evaluation;
  });
  return epoch;
}

TEST(Pipeline, EpochsEndWithFewerMicrobatches) {
  for (const Model& model : {chain(), skips()}) {
    Strategy serial;
    serial.schedule("gpipe", 4);
    const Epoch expected = run_epoch(model, serial);
    for (const std::string kind : {"1f1b", "zb-h1", "interleaved", "chimera"}) {
      Strategy strategy = staged(model, 2, {"data=2", "y=2"}, kind, 4);
      strategy.layer("*", {.output = kind == "chimera" ? "N@data" : "N@data H@y"})
          .optimizer_state(Strategy::OptimizerState::sharded);
      const Epoch epoch = run_epoch(model, strategy);
      EXPECT_NEAR(epoch.loss, expected.loss, 1e-9) << kind;
      EXPECT_NEAR(epoch.evaluation, expected.evaluation, 1e-9) << kind;
      std::map<std::string, Tensor> whole;
      for (const auto& [name, tensor] : expected.weights[0]) whole[name] = tensor.local;
      for (const auto& rank : epoch.weights)
        for (const auto& [name, tensor] : rank) EXPECT_LT(difference(tensor.local, whole.at(name), 1e-3), 1e-8) << name;
    }
  }
}

/// Trains one or two steps on some stages, saves a checkpoint, and trains one step on other stages that load it.
double loss_of_second_step(const Model& model, const Strategy& first, const Strategy& second, const std::string& file) {
  double loss = 0;
  for (const bool begins : {true, false}) {
    if (!begins && file.empty()) break;
    const Strategy& strategy = begins ? first : second;
    run_threads(strategy.ranks(), [&](Communicator& comm) {
      DrawnData data(inputs_of(model), model.layers().back().op->target(model.shapes(1)[9]), 14, 3);
      TrainerOptions options;
      options.check_replicas = 1;
      options.batch = 7;
      options.dtype = DType::f64;
      options.backend = "reference";
      options.optimizer.method = Method::adam;
      Trainer trainer(model, strategy, options, comm);
      if (begins) trainer.step(data, std::vector<Index>{0, 1, 2, 3, 4, 5, 6});
      if (begins && !file.empty()) {
        trainer.save(file);
        return;
      }
      if (!begins) trainer.load(file, true);
      const double second_loss = trainer.step(data, std::vector<Index>{7, 8, 9, 10, 11, 12, 13}).loss;
      if (comm.rank() == 0) loss = second_loss;
    });
  }
  return loss;
}

TEST(Pipeline, StagesWithoutNamesTrainAsOneRankDoes) {
  for (const Model& model : {chain(), skips()})
    for (const std::string kind : {"gpipe", "1f1b", "zb-h1", "interleaved", "zb-v"}) {
      Strategy strategy;
      strategy.stages(kind == "gpipe" || kind == "1f1b" ? 3 : 2).schedule(kind, 3);
      expect_serial_result(model, placed(model, strategy, {.batch = 7, .optimizer = {}}), 7);
      if (HasFailure()) return;
    }
  Strategy wide("data=2");
  wide.layer("*", {.output = "N@data"})
      .stages(2)
      .schedule("chimera", 4)
      .optimizer_state(Strategy::OptimizerState::sharded);
  expect_serial_result(chain(), placed(chain(), wide, {.batch = 7, .optimizer = {}}), 7);
}

TEST(Pipeline, PlacedStagesStayForASmallerLastBatch) {
  Strategy serial, three;
  const Epoch expected = run_epoch(chain(), serial.schedule("gpipe", 4));
  const Epoch epoch = run_epoch(
      chain(), placed(chain(), three.stages(3).schedule("1f1b", 4), {.batch = 7, .optimizer = {}}));  // 7, 7, 1 samples
  EXPECT_NEAR(epoch.loss, expected.loss, 1e-9);
  EXPECT_NEAR(epoch.evaluation, expected.evaluation, 1e-9);
  std::size_t weights = 0;
  for (const auto& rank : epoch.weights) weights += rank.size();
  EXPECT_EQ(weights, expected.weights[0].size()) << "each on one stage";
}

TEST(Pipeline, CheckpointsLoadOnOtherStages) {
  PARTITA_NEED_HDF5();
  const Model model = chain();
  std::vector<Strategy> strategies{Strategy(), staged(model, 3, {"data=2", "", "c=3"}, "1f1b", 1),
                                   staged(model, 2, {"y=2"}, "chimera", 1),
                                   staged(model, 2, {"data=3", ""}, "zb-v", 1)};
  strategies[1].optimizer_state(Strategy::OptimizerState::sharded);
  const double expected = loss_of_second_step(model, strategies[0], strategies[0], "");
  const std::string file = testing::TempDir() + fmt::format("stages-{}.h5", getpid());
  for (const auto& first : strategies)
    for (const auto& second : strategies) EXPECT_NEAR(loss_of_second_step(model, first, second, file), expected, 1e-12);
  std::remove(file.c_str());
}

/// Seconds per step of two stages of two ranks each, if every message takes `latency`.
double seconds_of_step(bool overlap, double latency) {
  Model m("many sums");
  auto t = m.input("in", {.channels = 8, .spatial = {}});
  for (int i = 0; i < 10; ++i) t = m.linear(fmt::format("l{}", i), t, {.features = 8});
  m.mean_squared_error("loss", t);
  Strategy strategy("data=2");
  strategy.layer("*", {.output = "N@data"}).stages(2).schedule("1f1b", 2).bucket_bytes(1);
  strategy = placed(m, strategy, {.batch = 4, .optimizer = {}});
  double seconds = 0;
  run_threads(4, [&](Communicator& comm) {
    const auto slow = delaying(comm, {.latency = latency});
    DrawnData data(inputs_of(m), m.layers().back().op->target(m.shapes(1)[10]), 4, 0);
    TrainerOptions options;
    options.check_replicas = 1;
    options.batch = 4;
    options.dtype = DType::f64;
    options.backend = "reference";
    options.overlap = overlap;
    Trainer trainer(m, strategy, options, *slow);
    const double start = now();
    trainer.step(data, std::vector<Index>{0, 1, 2, 3});
    if (comm.rank() == 0) seconds = now() - start;
  });
  return seconds;
}

TEST(Pipeline, SumsTravelWhileTheCoolDownGoesOn) {
  constexpr double latency = 0.02;
  // Ten sums per stage take ten latencies one after the other, and about one if they start as the backward pass
  // completes them.
  EXPECT_GT(seconds_of_step(false, latency) - seconds_of_step(true, latency), 5 * latency);
}

TEST(Pipeline, CrossesStraightFromProducerToReader) {
  const Model model = skips();
  const Plan plan = bind(model, staged(model, 8, {""}, "1f1b", 2), {.batch = 2, .optimizer = {}});
  std::string edges;
  for (const auto& layer : plan.layers)
    for (const auto& boundary : layer.sends_to_stages)
      edges += fmt::format("{}:{}>{} ", layer.name, layer.group, boundary.group);
  // b is read twice on stage 2, and sent once.
  EXPECT_EQ(edges, "in:0>6 a:0>1 a:0>4 down:1>3 b:1>2 c:2>3 up:3>4 both:4>5 d:5>6 e:6>7 ") << "and nothing else";
  check_rendezvous(plan.schedule,
                   GroupGraph(8, {{0, 1}, {0, 4}, {0, 6}, {1, 2}, {1, 3}, {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}}));
}

TEST(Pipeline, OneForwardOneBackwardHoldsLess) {
  const Model model = chain();
  const auto peak = [&](const std::string& kind) {
    const Plan plan = bind(model, staged(model, 4, {""}, kind, 8), {.batch = 8, .optimizer = {}});
    return peak_memory(plan, 0).each[MemoryClass::activations];
  };
  EXPECT_LT(peak("1f1b"), 0.7 * static_cast<double>(peak("gpipe")));
}

TEST(Pipeline, RefusesStagesThatDoNotFit) {
  const Model model = chain();
  const auto error = [&](const std::string& toml) {
    return error_of([&] { bind(model, Strategy::parse(toml, "s.toml"), {.batch = 4, .optimizer = {}}); });
  };
  const auto stage = [](const char* first, const char* last, const char* more = "") {
    return fmt::format("[[group]]\nlayers = [\"{}\", \"{}\"]\n{}", first, last, more);
  };
  EXPECT_EQ(error(stage("in", "r1") + stage("c2", "loss")), "");
  EXPECT_EQ(error(stage("in", "r1") + stage("d1", "loss")),
            "s.toml, line 3, column 1: 'c2' would be in no group; this group must begin with it");
  EXPECT_EQ(error(stage("in", "r1") + stage("n1", "loss")),
            "s.toml, line 3, column 1: 'n1' is in group 0 already; this group must begin with 'c2'");
  EXPECT_EQ(error(stage("in", "r1")),
            "s.toml, line 1, column 1: 'c2' would be in no group; the last group ends with 'loss'");
  EXPECT_EQ(error(stage("r1", "in")), "s.toml, line 1, column 1: its first layer 'r1' comes after its last, 'in'");
  EXPECT_NE(error(stage("in", "r3"))
                .find("s.toml, line 1, column 1: 'r3' is not a layer of the model 'chain' (did you mean 'r1'?)"),
            std::string::npos);
  const std::string v = "[schedule]\nkind = \"zb-v\"\nmicrobatches = 2\n";
  EXPECT_EQ(error(v + stage("in", "r1") + stage("c2", "loss")), "") << "both on one stage";
  EXPECT_EQ(error(v + stage("in", "r1") + stage("c2", "d1") + stage("r2", "loss")),
            "the schedule 'zb-v' runs 2 groups of layers per stage, but the strategy has 3 [[group]] entries; give a "
            "multiple of 2");
  EXPECT_EQ(
      error(v + stage("in", "r1") + stage("c2", "c2") + stage("d1", "d1", "grid = \"y=2\"\n") + stage("r2", "loss")),
      "s.toml, line 8, column 1: its grid is \"y=2\", but it shares stage 1 with layers 'c2' to 'c2', whose grid is "
      "\"\"");
  EXPECT_EQ(error(v),
            "the schedule 'zb-v' runs 2 groups of layers per stage; name them in two or more [[group]] entries");
  EXPECT_NE(error("grid = \"data=2\"\n" + stage("in", "r1") + stage("c2", "loss", "grid = \"c=2\"\n") +
                  "[[layer]]\nmatch = \"c2\"\noutput = \"N@data\"\n")
                .find("no axis 'data'"),
            std::string::npos);
  EXPECT_EQ(error("grid = \"data=2\"\n" + stage("in", "r1") + stage("c2", "loss", "grid = \"c=2\"\n") +
                  "[[layer]]\nmatch = \"*\"\noutput = \"N@data C@c\"\n"),
            "")
      << "a pattern ignores the axes that a stage lacks";
}

}  // namespace
}  // namespace partita::test::pipeline_test
