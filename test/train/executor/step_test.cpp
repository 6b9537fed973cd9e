// The user's own loop: step() and predict() on batches that a rank fills itself, against a data set's and one rank's.
#include "partita/base/philox.hpp"
#include "partita/train/trainer/trainer.hpp"
#include "src/comm/threads/threads.hpp"
#include "test/support/error_of.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace partita::test::step_test {
namespace {

constexpr Index samples = 7;
constexpr int classes = 3;

/// Extents that no grid here divides.
Model net() {
  Model m("net");
  auto t = m.input("in", {.channels = 2, .spatial = {7, 5}});
  t = m.conv("conv1", t, {.filters = 5, .kernel = 3, .padding = 1});
  t = m.batch_norm("norm", t);
  t = m.relu("relu", t);
  t = m.max_pool("pool", t, {.window = 2});
  t = m.conv("conv2", t, {.filters = 3, .kernel = 3, .padding = 1});
  t = m.linear("fc", t, {.features = classes});
  m.softmax_cross_entropy("loss", t);
  return m;
}

double pixel(Index sample, Index at) { return static_cast<float>(Random(7, 1).normal(100 * sample + at)); }
Index label(Index sample) { return (sample * sample + 1) % classes; }

/// Sets the elements of `box` of one sample.
template <class T>
void set_pixels(Index sample, const Box& box, std::span<T> values) {
  std::size_t next = 0;
  for (Index c = box[0].lo; c < box[0].hi; ++c)
    for (Index y = box[1].lo; y < box[1].hi; ++y)
      for (Index x = box[2].lo; x < box[2].hi; ++x) values[next++] = static_cast<T>(pixel(sample, (c * 7 + y) * 5 + x));
}

class Drawn final : public Dataset {
 public:
  Shape sample() const override { return {{'C', 2}, {'H', 7}, {'W', 5}}; }
  Index size() const override { return samples; }
  Index classes() const override { return step_test::classes; }
  void hold(std::span<const Index>, const Box&) override {}
  void read(Index sample, const Box& box, std::span<double> out) const override { set_pixels(sample, box, out); }
  std::int32_t label(Index sample) const override { return static_cast<std::int32_t>(step_test::label(sample)); }
};

TrainerOptions options() {
  TrainerOptions o;
  o.check_replicas = 1;
  o.batch = samples;
  o.dtype = DType::f64;
  o.optimizer.rate = 0.05;
  o.backend = "reference";
  return o;
}

void fill_batch(const LocalBatch& batch) {
  batch.fill_images([](Index sample, const Box& box, std::span<double> values) { set_pixels(sample, box, values); });
  batch.fill_targets([](Index sample, const Box&, std::span<double> values) {
    for (double& value : values) value = static_cast<double>(label(sample));
  });
}

/// Scores by sample and class, as one rank has them.
using Scores = std::map<std::pair<Index, Index>, double>;

/// The losses of three steps, and what the trained model predicts.
struct Course {
  std::vector<double> losses;
  Scores scores;
};

Scores predict(Trainer& trainer, Index count) {
  const LocalBatch batch = trainer.make_batch(count, false);
  batch.fill_images([](Index sample, const Box& box, std::span<double> values) { set_pixels(sample, box, values); });
  Scores scores;
  for (const auto& block : trainer.predict(batch))
    block.read([&](Index sample, const Box& box, std::span<const double> values) {
      for (Index c = box[0].lo; c < box[0].hi; ++c) scores[{sample, c}] = values[c - box[0].lo];
    });
  return scores;
}

Course run(const Strategy& strategy, Communicator& comm) {
  Course course;
  Trainer trainer(net(), strategy, options(), comm);
  const LocalBatch batch = trainer.make_batch(samples);
  fill_batch(batch);
  for (int step = 0; step < 3; ++step) course.losses.push_back(trainer.step(batch).loss);
  course.scores = predict(trainer, 5);
  EXPECT_TRUE(trainer.predicted() == trainer.measured()) << "bytes of rank " << comm.rank();
  return course;
}

Course run_alone(int microbatches) {
  Course course;
  Strategy one;
  if (microbatches > 1) one.schedule(ScheduleKind::gpipe, microbatches);
  run_threads(1, [&](Communicator& comm) { course = run(one, comm); });
  return course;
}

std::vector<Strategy> strategies() {
  std::vector<Strategy> all(7);
  all[1] = Strategy("data=2").layer("*", {.output = "N@data"});
  all[2] = Strategy("y=2").layer("*", {.output = "H@y"});
  all[3] = Strategy("data=2 y=2").layer("*", {.output = "N@data H@y"}).schedule(ScheduleKind::gpipe, 3);
  all[4] = Strategy("data=2")
               .layer("*", {.output = "N@data"})
               .group({"in", "norm"})
               .group({"relu", "loss"})
               .schedule(ScheduleKind::one_f_one_b, 3);
  all[5] = Strategy("c=2")
               .layer("*", {.output = "C@c"})
               .group({"in", "pool"})
               .group({"conv2", "loss"})
               .schedule(ScheduleKind::chimera, 2);
  all[6] = Strategy().stages(1).group({"in", "pool"}).group({"conv2", "loss"}).schedule(ScheduleKind::zb_h1, 2);
  return all;
}

}  // namespace

TEST(Step, TrainsOnOwnTensorsAsOnADataSet) {
  for (const Strategy& strategy : strategies()) {
    SCOPED_TRACE(strategy.print());
    run_threads(strategy.ranks(), [&](Communicator& comm) {
      Drawn data;
      Trainer trainer(net(), strategy, options(), comm);
      std::vector<Index> all{0, 1, 2, 3, 4, 5, 6};
      std::vector<double> losses;
      for (int step = 0; step < 3; ++step) losses.push_back(trainer.step(data, all).loss);
      EXPECT_EQ(run(strategy, comm).losses, losses) << "on rank " << comm.rank();
    });
  }
}

TEST(Step, PredictsAsOneRankDoes) {
  for (const Strategy& strategy : strategies()) {
    SCOPED_TRACE(strategy.print());
    const Course alone = run_alone(strategy.microbatches());
    ASSERT_EQ(alone.scores.size(), 5U * classes);
    std::vector<Course> ranks(static_cast<std::size_t>(strategy.ranks()));
    run_threads(strategy.ranks(), [&](Communicator& comm) { ranks[comm.rank()] = run(strategy, comm); });
    Scores found;
    for (const auto& rank : ranks)
      for (const auto& [at, score] : rank.scores) {
        EXPECT_NEAR(score, alone.scores.at(at), 1e-8) << "sample " << at.first << ", class " << at.second;
        found[at] = score;
      }
    EXPECT_EQ(found.size(), alone.scores.size()) << "some rank has each score";
  }
}

TEST(Step, RanksBringWhatTheirStageReads) {
  const Strategy strategy = strategies()[4];
  run_threads(4, [&](Communicator& comm) {
    Trainer trainer(net(), strategy, options(), comm);
    const LocalBatch batch = trainer.make_batch(samples);
    ASSERT_EQ(batch.images.size(), 3U);
    Index images = 0, targets = 0, next = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      EXPECT_EQ(batch.images[j].first_sample, next);
      next += batch.images[j].shape['N'];
      images += batch.images[j].tensor.volume();
      targets += batch.targets[j].tensor.volume();
    }
    EXPECT_EQ(next, samples);
    EXPECT_EQ(images > 0, comm.rank() < 2) << "ranks 0 and 1 are the first stage";
    EXPECT_EQ(targets > 0, comm.rank() >= 2);
  });
}

// A training pins the layouts of its weights. They decide how a linear layer's sums are formed, so an evaluation alone
// takes the same.
TEST(Step, AnEvaluationAloneHasTheBitsOfATraining) {
  for (const char* grid : {"y=2", "y=3"})
    for (const char* all : {"H@y", "W@y", "N@y", "C@y"})
      for (const char* fc : {"", "N@y C", "N C@y"})
        for (const DType dtype : {DType::f64, DType::f32}) {
          Strategy strategy(grid);
          strategy.layer("*", {.output = all});
          if (*fc != '\0') strategy.layer("fc", {.output = fc});
          run_threads(strategy.ranks(), [&](Communicator& comm) {
            TrainerOptions o = options();
            o.dtype = dtype;
            o.batch = 4;
            Drawn data;
            Trainer training(net(), strategy, o, comm);
            o.training = false;
            Trainer alone(net(), strategy, o, comm);
            EXPECT_EQ(training.evaluate(data, {}).loss, alone.evaluate(data, {}).loss)
                << all << " " << fc << " on " << grid << " in " << name(dtype);
          });
        }
}

TEST(Step, SaysWhatItRefuses) {
  run_threads(1, [](Communicator& comm) {
    TrainerOptions evaluation = options();
    evaluation.training = false;
    Trainer trainer(net(), Strategy(), evaluation, comm);
    expect_error([&] { trainer.make_batch(0, false); }, {"a batch of 0 samples"});
    expect_error([&] { trainer.predict({}); }, {"the batch has no samples", "make_batch"});
    LocalBatch batch = trainer.make_batch(3, false);
    expect_error([&] { trainer.step(batch); }, {"evaluates only", "TrainerOptions::training"});
    batch.samples = 4;
    expect_error([&] { trainer.predict(batch); }, {"batch of 4 samples", "make_batch(4, false)"});
    Trainer training(net(), Strategy(), options(), comm);
    LocalBatch labeled = training.make_batch(samples);
    labeled.targets[0].tensor.set(labeled.targets[0].tensor.volume() - 1, 77);
    expect_error([&] { training.step(labeled); }, {"sample", "of the batch has the label 77", "the loss", "classes"});
    const auto data = make_synthetic({{'C', 2}, {'H', 7}, {'W', 5}}, {}, 5, classes, 1, 0);
    expect_error(
        [&] {
          training.step(*data, std::vector<Index>{0, 5});
        },
        {"a step cannot read sample 5 of a data set of 5 samples; give samples 0 to 4"});
    TrainerOptions decaying = options();
    decaying.optimizer.decay = Decay::cosine;
    Trainer endless(net(), Strategy(), decaying, comm);
    expect_error([&] { endless.step(endless.make_batch(samples)); },
                 {"decays over all steps", "TrainerOptions::steps"});
  });
}

}  // namespace partita::test::step_test
