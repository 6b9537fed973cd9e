// Counts by class: they equal those of a plain loop, and an evaluation counts the same under every layout.
#include "partita/train/trainer/class_counts.hpp"

#include "partita/base/philox.hpp"
#include "partita/train/trainer/trainer.hpp"
#include "src/comm/threads/threads.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace partita::test::class_counts_test {
namespace {

/// Scores of `rows` rows with some equal numbers, and labels.
struct Drawn {
  Drawn(Index rows, Index classes, DType dtype)
      : scores(dtype, "NC", Box(Shape{{'N', rows}, {'C', classes}})), labels(DType::i32, "N", Box(Shape{{'N', rows}})) {
    for (Index i = 0; i < rows * classes; ++i) scores.set(i, static_cast<double>(Random(1, 2).bits(i) % 7));
    for (Index i = 0; i < rows; ++i)
      labels.set(i, static_cast<double>(Random(1, 3).bits(i) % static_cast<std::uint32_t>(classes)));
  }
  Tensor scores, labels;
};

/// Returns the classes of a row from the largest score to the smallest; of equal scores the first class comes first.
std::vector<Index> best_first(const Tensor& scores, Index row, Index classes) {
  std::vector<Index> order(static_cast<std::size_t>(classes));
  std::iota(order.begin(), order.end(), Index{0});
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) {
    return scores.at({row, a}) > scores.at({row, b});
  });
  return order;
}

TEST(ClassCounts, AreThoseOfAPlainLoop) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    constexpr Index rows = 200, classes = 13;
    const Drawn drawn(rows, classes, dtype);
    std::vector<std::vector<Index>> matrix(classes, std::vector<Index>(classes));
    double right = 0, among5 = 0;
    for (Index row = 0; row < rows; ++row) {
      const auto order = best_first(drawn.scores, row, classes);
      const auto label = static_cast<Index>(drawn.labels.get(row));
      ++matrix[label][order[0]];
      right += order[0] == label ? 1 : 0;
      among5 += std::find(order.begin(), order.begin() + 5, label) != order.begin() + 5 ? 1 : 0;
    }
    ClassCounts counts(classes);
    counts.add(drawn.scores, drawn.labels);
    EXPECT_EQ(counts.matrix(), matrix) << name(dtype);
    EXPECT_EQ(counts.positions(), rows);
    EXPECT_DOUBLE_EQ(counts.accuracy(), right / rows);
    ASSERT_TRUE(counts.has_top5());
    EXPECT_DOUBLE_EQ(counts.top5(), among5 / rows);
  }
}

TEST(ClassCounts, MeanIouLeavesOutClassesThatDoNotOccur) {
  const Tensor scores(DType::f64, "NC", Box(Shape{{'N', 4}, {'C', 4}})), labels(DType::i32, "N", Box(Shape{{'N', 4}}));
  const std::vector<Index> predictions{0, 0, 1, 2};
  for (Index row = 0; row < 4; ++row) scores.set(4 * row + predictions[row], 1);
  for (Index row = 1; row < 4; ++row) labels.set(row, 1);
  ClassCounts counts(4);
  counts.add(scores, labels);  // class 0: 1/2, 1: 1/3, 2: 0/1; class 3 does not occur
  EXPECT_DOUBLE_EQ(counts.mean_iou(), (1.0 / 2 + 1.0 / 3 + 0) / 3);
  EXPECT_FALSE(counts.has_top5());
}

TEST(ClassCounts, OfManyClassesHaveNoMatrix) {
  const Drawn drawn(50, 101, DType::f32);
  ClassCounts counts(101);
  counts.add(drawn.scores, drawn.labels);
  EXPECT_FALSE(counts.has_matrix());
  EXPECT_EQ(counts.positions(), 50);
  EXPECT_TRUE(std::isnan(ClassCounts(3).accuracy())) << "of nothing";
  EXPECT_TRUE(std::isnan(ClassCounts().mean_iou())) << "of values";
}

/// A small network that labels images, or each position of an image.
Model network(bool segments) {
  Model model("counted");
  Value t = model.input("image", {.channels = 2, .spatial = {7, 6}});
  t = model.relu("relu", model.conv("conv", t, {.filters = 5, .kernel = 3, .padding = 1}));
  if (segments)
    model.softmax_dice("loss", model.conv("scores", t, {.filters = 11, .kernel = 1}));
  else
    model.softmax_cross_entropy("loss", model.linear("scores", t, {.features = 11}));
  return model;
}

EpochReport evaluated(const Strategy& strategy, bool segments) {
  EpochReport report;
  run_threads(strategy.ranks(), [&](Communicator& comm) {
    const auto data =
        make_synthetic({{'C', 2}, {'H', 7}, {'W', 6}}, segments ? Shape{{'H', 7}, {'W', 6}} : Shape(), 23, 11, 1, 0);
    TrainerOptions options;
    options.check_replicas = 1;
    options.batch = 5;
    options.dtype = DType::f64;
    options.backend = "reference";
    options.optimizer.rate = 0.01;
    Trainer trainer(network(segments), strategy, options, comm);
    trainer.train_epoch(*data, {});
    const EpochReport mine = trainer.evaluate(*data, {});
    EXPECT_TRUE(trainer.predicted() == trainer.measured()) << "on rank " << comm.rank();
    EXPECT_NEAR(mine.counts.accuracy(), mine.accuracy, 1e-12) << "on rank " << comm.rank();
    if (comm.rank() + 1 == comm.size()) report = mine;
  });
  return report;
}

Strategy shared(const char* grid, const char* output) {
  Strategy strategy(grid);
  strategy.layer("*", {.output = output});
  return strategy;
}

/// Strategies that cut samples and positions, repeat work on an axis, or run stages and two replicas.
std::vector<Strategy> strategies() {
  std::vector<Strategy> all{shared("a=3", "N@a"), shared("a=2 b=2", "N@a H@b"), shared("b=4", "W@b"),
                            shared("a=2 r=2", "N@a"), shared("c=3", "C@c")};
  for (const auto& [grid, kind] : {std::pair("a=2", "1f1b"), std::pair("", "chimera")}) {
    Strategy& staged = all.emplace_back(grid);
    if (*grid != '\0') staged.layer("*", {.output = "N@a"});
    staged.group({"image", "relu"}).group({"scores", "loss"}).schedule(kind, 2);
  }
  return all;
}

TEST(ClassCounts, AreTheSameUnderEveryLayout) {
  for (const bool segments : {false, true}) {
    const EpochReport serial = evaluated(Strategy(), segments);
    EXPECT_EQ(serial.counts.positions(), segments ? 23 * 42 : 23);
    for (const Strategy& strategy : strategies()) {
      const EpochReport report = evaluated(strategy, segments);
      EXPECT_EQ(report.counts.matrix(), serial.counts.matrix()) << strategy.print();
      EXPECT_EQ(report.counts.top5(), serial.counts.top5()) << strategy.print();
      EXPECT_EQ(report.counts.mean_iou(), serial.counts.mean_iou()) << strategy.print();
    }
  }
}

}  // namespace
}  // namespace partita::test::class_counts_test
