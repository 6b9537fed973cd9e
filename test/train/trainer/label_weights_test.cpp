// Labels that count for nothing, weights of classes and smoothing: the loss, its gradient and the counts are those of
// what counts in the whole batch, however ranks, microbatches and stages cut it.
#include "src/comm/threads/threads.hpp"
#include "src/train/trainer/trainer_parts.hpp"
#include "test/support/error_of.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace partita::test::label_weights_test {
namespace {

constexpr Index places = 1000, classes = 3;
constexpr std::int32_t ignored = -100;

/// The places of each sample that count.
const std::vector<Index>& counted() {
  static const std::vector<Index> all{1000, 1, 7, 0, 0, 0};
  return all;
}
Index all_counted() { return std::accumulate(counted().begin(), counted().end(), Index{0}); }

double value(Index sample, Index place, Index channel) {
  return std::sin(0.37 * static_cast<double>(sample * places + place) + 1.9 * static_cast<double>(channel));
}
std::int32_t class_of(Index sample, Index place) {
  return static_cast<std::int32_t>((sample + place * place) % classes);
}

/// Samples of which some places count, or (`dense`) one sample with those places alone.
class Marked final : public Dataset {
 public:
  explicit Marked(bool dense) : dense_(dense) {}
  Shape sample() const override { return {{'C', 2}, {'W', dense_ ? all_counted() : places}}; }
  Shape target() const override { return {{'W', dense_ ? all_counted() : places}}; }
  Index size() const override { return dense_ ? 1 : std::ssize(counted()); }
  Index classes() const override { return label_weights_test::classes; }
  void hold(std::span<const Index>, const Box&) override {}
  void read(Index sample, const Box& box, std::span<double> out) const override {
    Index i = 0;
    for (Index c = box[0].lo; c < box[0].hi; ++c)
      for (Index place = box[1].lo; place < box[1].hi; ++place, ++i) {
        const auto [s, p] = origin(sample, place);
        out[i] = value(s, p, c);
      }
  }
  void read_labels(Index sample, const Box& box, std::span<std::int32_t> out) const override {
    for (Index place = box[0].lo; place < box[0].hi; ++place) {
      const auto [s, p] = origin(sample, place);
      out[place - box[0].lo] = p < counted()[s] ? class_of(s, p) : ignored;
    }
  }

 private:
  std::pair<Index, Index> origin(Index sample, Index place) const {
    if (!dense_) return {sample, place};
    Index s = 0;
    for (; place >= counted()[s]; ++s) place -= counted()[s];
    return {s, place};
  }
  bool dense_;
};

/// A network that classifies each place on its own.
Model network(Index extent, const CrossEntropy& labels) {
  Model m("places");
  Value t = m.input("in", {.channels = 2, .spatial = {extent}});
  t = m.tanh("bent", m.conv("hidden", t, {.filters = 4, .kernel = 1}));
  m.softmax_cross_entropy("loss", m.conv("scores", t, {.filters = classes, .kernel = 1}), labels);
  return m;
}

struct Outcome {
  std::vector<double> losses, accuracies, norms, weights;
  EpochReport evaluated;
};

Outcome trained(const Strategy& strategy, const CrossEntropy& labels, bool dense, double clip = 0) {
  Outcome outcome;
  run_threads(strategy.ranks(), [&](Communicator& comm) {
    Marked data(dense);
    TrainerOptions options;
    options.batch = data.size();
    options.dtype = DType::f64;
    options.backend = "reference";
    options.check_replicas = 1;
    options.optimizer.rate = 0.5;
    options.optimizer.clip_norm = clip;
    Trainer trainer(network(data.target()['W'], labels), strategy, options, comm);
    std::vector<Index> samples(static_cast<std::size_t>(data.size()));
    std::iota(samples.begin(), samples.end(), Index{0});
    for (int step = 0; step < 3; ++step) {
      const StepResult result = trainer.step(data, samples);
      if (comm.rank() + 1 != comm.size()) continue;
      outcome.losses.push_back(result.loss);
      outcome.accuracies.push_back(result.accuracy);
      outcome.norms.push_back(result.gradient_norm);
      EXPECT_EQ(result.skipped, false);
    }
    EXPECT_TRUE(trainer.predicted() == trainer.measured()) << "on rank " << comm.rank();
    const EpochReport report = trainer.evaluate(data, {});
    if (comm.rank() + 1 == comm.size()) outcome.evaluated = report;
  });
  return outcome;
}

void expect_same(const Outcome& found, const Outcome& want) {
  for (std::size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], want.losses[i], 1e-12);
    EXPECT_NEAR(found.accuracies[i], want.accuracies[i], 1e-12);
    EXPECT_NEAR(found.norms[i], want.norms[i], 1e-12);
  }
  EXPECT_NEAR(found.evaluated.loss, want.evaluated.loss, 1e-12);
  EXPECT_NEAR(found.evaluated.accuracy, want.evaluated.accuracy, 1e-12);
  EXPECT_EQ(found.evaluated.counts.matrix(), want.evaluated.counts.matrix());
  EXPECT_EQ(found.evaluated.counts.positions(), all_counted());
}

std::vector<Strategy> strategies() {
  std::vector<Strategy> all{Strategy()};
  for (const auto& [grid, output] :
       {std::pair("a=2", "N@a"), std::pair("a=3", "W@a"), std::pair("a=2 b=2", "N@a W@b"), std::pair("c=2", "C@c")}) {
    all.emplace_back(grid);
    all.back().layer("*", {.output = output});
  }
  for (std::size_t i = 0, whole = all.size(); i < whole; ++i) {
    Strategy cut = all[i];
    cut.schedule("1f1b", 3);
    all.push_back(cut);
  }
  for (const auto& [grid, kind] : {std::pair("a=2", "1f1b"), std::pair("", "chimera")}) {
    Strategy& staged = all.emplace_back(grid);
    if (*grid != '\0') staged.layer("*", {.output = "N@a"});
    staged.group({"in", "bent"}).group({"scores", "loss"}).schedule(kind, 2);
  }
  return all;
}

TEST(LabelWeights, TheLossIsTheMeanOverWhatCounts) {
  const std::vector<CrossEntropy> kinds{{.ignored = ignored},
                                        {.ignored = ignored, .weights = {0.5, 2, 0}},
                                        {.ignored = ignored, .weights = {3, 1, 0.25}, .smoothing = 0.2},
                                        {.ignored = ignored, .smoothing = 0.1}};
  for (const CrossEntropy& labels : kinds) {
    const Outcome dense = trained(Strategy(), labels, true);  // nothing is ignored here
    for (const Strategy& strategy : strategies()) {
      SCOPED_TRACE(strategy.print());
      expect_same(trained(strategy, labels, false), dense);
    }
  }
}

TEST(LabelWeights, WithoutThemTheLossIsThePlainMean) {
  Outcome plain = trained(Strategy(), {}, true), ones = trained(Strategy(), {.weights = {1, 1, 1}}, true);
  expect_same(ones, plain);
}

TEST(LabelWeights, TheNormThatClipsIsThatOfTheMean) {
  const CrossEntropy labels{.ignored = ignored};
  const Outcome dense = trained(Strategy(), labels, true, 0.05);
  EXPECT_GT(dense.norms[0], 0.05);
  for (const Strategy& strategy : strategies()) {
    SCOPED_TRACE(strategy.print());
    expect_same(trained(strategy, labels, false, 0.05), dense);
  }
}

TEST(LabelWeights, NothingThatCountsGivesNoLossAndNoGradient) {
  // The first sample's label is 0 everywhere, and is ignored.
  class Zeros final : public Dataset {
    Shape sample() const override { return {{'C', 2}, {'W', 4}}; }
    Shape target() const override { return {{'W', 4}}; }
    Index size() const override { return 2; }
    Index classes() const override { return label_weights_test::classes; }
    void hold(std::span<const Index>, const Box&) override {}
    void read(Index, const Box&, std::span<double> out) const override { std::fill(out.begin(), out.end(), 1.5); }
    void read_labels(Index, const Box&, std::span<std::int32_t> out) const override {
      std::fill(out.begin(), out.end(), 0);
    }
  };
  Strategy strategy("a=2");
  strategy.layer("*", {.output = "N@a"});
  run_threads(2, [&](Communicator& comm) {
    Zeros data;
    TrainerOptions options;
    options.batch = 2;
    // Labels that weigh nothing have no loss either, though smoothing gives the other classes some.
    Trainer weightless(network(4, {.weights = {0, 1, 1}, .smoothing = 0.5}), strategy, options, comm);
    const StepResult none = weightless.step(data, std::vector<Index>{0, 1});
    EXPECT_EQ(none.loss, 0);
    EXPECT_EQ(none.gradient_norm, 0);
    EXPECT_EQ(none.counted, 1);
    Trainer trainer(network(4, {.ignored = 0}), strategy, options, comm);
    const StepResult result = trainer.step(data, std::vector<Index>{0, 1});
    EXPECT_EQ(result.loss, 0);
    EXPECT_EQ(result.gradient_norm, 0);
    EXPECT_EQ(result.weight, 0);
    EXPECT_TRUE(std::isnan(result.accuracy));
    EXPECT_FALSE(result.skipped);
    const EpochReport report = trainer.evaluate(data, {});
    EXPECT_EQ(report.counts.positions(), 0);
    EXPECT_TRUE(std::isnan(report.loss));
  });
}

TEST(LabelWeights, AreCheckedByTheModel) {
  const auto build = [](const CrossEntropy& labels) { return network(4, labels).shapes(1); };
  expect_error([&] { build({.weights = {1, 2}}); }, {"'loss'", "2 weights of classes for 3 classes"});
  expect_error([&] { build({.weights = {1, 2, -1}}); }, {"the weight of class 2 is -1"});
  expect_error([&] { build({.smoothing = 1}); }, {"smoothing is 1", "less than 1"});
  run_threads(1, [&](Communicator& comm) {
    Marked data(false);
    TrainerOptions options;
    options.batch = 6;
    Trainer trainer(network(places, {.ignored = -1}), Strategy(), options, comm);
    expect_error([&] { trainer.step(data, std::vector<Index>{0, 1, 2, 3, 4, 5}); }, {"-100", "labels are 0 to 2"});
  });
}

}  // namespace
}  // namespace partita::test::label_weights_test
