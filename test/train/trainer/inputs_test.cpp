// Models with several inputs, which data sets and users' own batches give by name.
#include "src/comm/threads/threads.hpp"
#include "src/train/data/subset.hpp"
#include "src/train/trainer/trainer_parts.hpp"
#include "test/support/error_of.hpp"
#include "test/support/lazy_backend.hpp"
#include "test/support/lazy_device.hpp"
#include "test/support/master.hpp"

#include <gtest/gtest.h>

namespace partita::test::inputs_test {
namespace {

constexpr Index samples = 5, tables = 3, rows = 7, bag = 2, features = 4;

Model net() {
  Model m("two_inputs");
  const Value categories = m.input("categories", {.channels = bag, .length = tables, .tokens = true});
  const Value vectors = m.tables("tables", categories, {.rows = rows, .features = features});
  const Value dense = m.linear("bottom", m.input("dense", {.channels = 3}), {.features = features});
  const Value pairs = m.interaction("pairs", vectors, dense);
  m.softmax_cross_entropy("loss", m.linear("scores", pairs, {.features = 2}));
  return m;
}

std::vector<SampleInput> inputs() {
  return {{"dense", {{'C', 3}}, 0}, {"categories", {{'C', bag}, {'L', tables}}, rows}};
}

TrainerOptions options() {
  TrainerOptions o;
  o.batch = samples;
  o.dtype = DType::f64;
  o.backend = "reference";
  return o;
}

/// On one rank, on stages of which two have an input, and with tables on different ranks.
std::vector<Strategy> strategies() {
  std::vector<Strategy> all(4);
  all[1] = Strategy("r=3")
               .layer("*", {.output = "N@r"})
               .layer("categories", {.output = "L@r"})
               .layer("tables", {.output = "L@r"});
  all[2] = Strategy("r=2")
               .layer("*", {.output = "N@r"})
               .group({"categories", "tables"})
               .group({"dense", "loss"})
               .schedule(ScheduleKind::one_f_one_b, 3);
  // The first stage only reads, and the second has its input from another data set's input.
  all[3] = Strategy("r=1").group({"categories", "categories"}).group({"tables", "dense"}).group({"bottom", "loss"});
  all[3].schedule(ScheduleKind::gpipe, 2);
  return all;
}

/// Reads a data set into a batch of a user's own.
void fill_batch(const LocalBatch& batch, const Dataset& data) {
  const auto own = data.inputs();
  for (int i = 0; i < std::ssize(own); ++i)
    batch.fill_images(own[i].name, [&](Index sample, const Box& box, std::span<double> values) {
      data.read_input(i, sample, box, values);
    });
  batch.fill_targets(
      [&](Index sample, const Box&, std::span<double> values) { values[0] = static_cast<double>(data.label(sample)); });
}

TEST(Inputs, AreReadByNameOnAnyStage) {
  for (const Strategy& strategy : strategies()) {
    SCOPED_TRACE(strategy.print());
    run_threads(strategy.ranks(), [&](Communicator& comm) {
      const auto data = make_synthetic(inputs(), samples, 2, 1, 0);
      std::vector<Index> all{0, 1, 2, 3, 4};
      Trainer from_set(net(), strategy, options(), comm), own(net(), strategy, options(), comm);
      const LocalBatch batch = own.make_batch(samples);
      fill_batch(batch, *data);
      for (int step = 0; step < 3; ++step)
        EXPECT_EQ(from_set.step(*data, all).loss, own.step(batch).loss) << "on rank " << comm.rank();
      EXPECT_TRUE(own.predicted() == own.measured()) << "bytes of rank " << comm.rank();
      EXPECT_EQ(from_set.predicted_memory().total, from_set.peak_memory().total) << "memory of rank " << comm.rank();
    });
  }
}

TEST(Inputs, GiveThePredictionsOfOneRank) {
  std::map<std::pair<Index, Index>, double> alone;
  for (const Strategy& strategy : strategies()) {
    SCOPED_TRACE(strategy.print());
    run_threads(strategy.ranks(), [&](Communicator& comm) {
      const auto data = make_synthetic(inputs(), samples, 2, 1, 0);
      Trainer trainer(net(), strategy, options(), comm);
      const LocalBatch batch = trainer.make_batch(samples, false);
      fill_batch(batch, *data);
      for (const auto& block : trainer.predict(batch))
        block.read([&](Index sample, const Box& box, std::span<const double> values) {
          for (Index c = box[0].lo; c < box[0].hi; ++c) {
            if (strategy.ranks() == 1) alone[{sample, c}] = values[c - box[0].lo];
            EXPECT_NEAR((alone.at({sample, c})), values[c - box[0].lo], 1e-12) << sample;
          }
        });
    });
  }
  EXPECT_EQ(alone.size(), static_cast<std::size_t>(2 * samples));
}

/// The losses of three epochs of four steps, on the CPU or on a device, and what the prediction of memory is.
std::vector<double> losses_of_epochs(const Strategy& strategy, LazyDevice* device, bool graphs) {
  std::vector<double> losses;
  run_threads(1, [&](Communicator& comm) {
    TrainerOptions o = options();
    o.epochs = 3;
    o.graphs = graphs;
    Trainer trainer(net(), strategy, o, comm,
                    device != nullptr ? lazy_processor(comm, *device) : cpu_processor(comm, make_reference_backend()));
    const auto data = make_synthetic(inputs(), 4 * samples, 2, 1, 0);
    for (int epoch = 0; epoch < 3; ++epoch)
      trainer.train_epoch(*data, [&](Index, Index, Index, const StepResult& step) { losses.push_back(step.loss); });
    EXPECT_EQ(trainer.predicted_memory().total, trainer.peak_memory().total);
    if (graphs) {
      EXPECT_GE(TrainerParts::executor(trainer, samples, true).launched(), 4);
    }
  });
  if (device != nullptr) device->check();
  return losses;
}

// The first microbatch of each step travels to a device during the step before, and graphs copy each input from where
// it lies then.
TEST(Inputs, TravelAheadToADevice) {
  Strategy two;
  two.schedule(ScheduleKind::gpipe, 2);
  for (const Strategy& strategy : {Strategy(), two}) {
    const auto expected = losses_of_epochs(strategy, nullptr, false);
    ASSERT_EQ(expected.size(), 12U);
    for (const bool graphs : {false, true})
      for (std::size_t starved = 0; starved < 6; ++starved) {
        SCOPED_TRACE(fmt::format("{} graphs, stream {} is starved", graphs ? "with" : "without", starved));
        LazyDevice device(static_cast<unsigned>(starved) + 1);
        device.starve(starved);
        const auto found = losses_of_epochs(strategy, &device, graphs);
        ASSERT_EQ(found.size(), expected.size());
        for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-9) << "loss " << i;
      }
  }
}

// The parts of a set that is divided have the inputs of the whole.
TEST(Inputs, AreThoseOfASubset) {
  const auto whole = make_synthetic(inputs(), 20, 2, 1, 0);
  const auto part = make_subset(make_synthetic(inputs(), 20, 2, 1, 0), {3, 11});
  ASSERT_EQ(part->inputs().size(), 2U);
  for (const int input : {0, 1}) {
    const Box box(inputs()[static_cast<std::size_t>(input)].shape);
    std::vector<double> mine(static_cast<std::size_t>(box.volume())), theirs(mine);
    part->read_input(input, 1, box, mine);
    whole->read_input(input, 11, box, theirs);
    EXPECT_EQ(mine, theirs);
  }
}

// Most tokens show the label of their sample, and each box of a sample has the same tokens.
TEST(Inputs, OfSyntheticSamplesShowTheirLabel) {
  const auto data = make_synthetic(inputs(), 200, 3, 1, 0);
  Index right = 0, all = 0;
  for (Index n = 0; n < data->size(); ++n) {
    const Box box(inputs()[1].shape);
    std::vector<double> tokens(static_cast<std::size_t>(box.volume()));
    data->read_input(1, n, box, tokens);
    for (const double token : tokens) {
      ASSERT_TRUE(token >= 0 && token < rows);
      right += static_cast<Index>(token) % 3 == data->label(n) ? 1 : 0;
      ++all;
    }
    Box last = box;
    last[1] = {tables - 1, tables};
    std::vector<double> column(bag);
    data->read_input(1, n, last, column);
    for (Index p = 0; p < bag; ++p) EXPECT_EQ(column[p], tokens[p * tables + tables - 1]);
  }
  EXPECT_NEAR(static_cast<double>(right) / static_cast<double>(all), 0.75 + 0.25 / 3, 0.05);
}

TEST(Inputs, OfOtherNamesAreRefused) {
  const auto step_of = [](std::vector<SampleInput> given) {
    const auto data = make_synthetic(std::move(given), samples, 2, 1, 0);
    data->set_name("clicks");
    return test::error_of([&] {
      run_threads(1, [&](Communicator& comm) {
        Trainer trainer(net(), Strategy(), options(), comm);
        trainer.step(*data, std::vector<Index>{0, 1, 2, 3, 4});
      });
    });
  };
  auto other = inputs();
  other[0].name = "dence";
  EXPECT_EQ(
      step_of(other),
      "the data set 'clicks' has no input 'dense', which the model reads (did you mean 'dence'?); it has 'dence', "
      "'categories'");
  other = inputs();
  other.push_back({"more", {{'C', 1}}, 0});
  EXPECT_EQ(step_of(other),
            "the model does not read the input 'more' of the data set 'clicks'; it reads 'categories', 'dense'");
  EXPECT_EQ(step_of({inputs()[0]}),
            "the samples of the data set 'clicks' have one input, but the model reads 2: 'categories', 'dense'; use "
            "a data set with these");
  other = inputs();
  other[1].vocabulary = rows + 4;
  const std::string beyond = step_of(other);
  EXPECT_NE(beyond.find("of a microbatch has the index"), std::string::npos) << beyond;
  EXPECT_NE(beyond.find("but the tables have 7 rows; indices are 0 to 6"), std::string::npos) << beyond;
}

/// A set whose tokens are not those that it announces.
class Lying final : public DatasetOfInputs {
 public:
  std::vector<SampleInput> inputs() const override { return inputs_test::inputs(); }
  Index size() const override { return samples; }
  Index classes() const override { return 2; }
  std::int32_t label(Index) const override { return 1; }
  void hold_input(int, std::span<const Index>, const Box&) override {}
  void read_input(int input, Index sample, const Box& box, std::span<double> out) const override {
    std::fill(out.begin(), out.end(), 1);
    if (input == 1 && sample == 2 && box[1].hi == tables) out[static_cast<std::size_t>(box[1].extent()) - 1] = 9;
  }
};

TEST(Inputs, AreNamedWithATokenBeyondTheirVocabulary) {
  Lying data;
  data.set_name("lying");
  for (const Strategy& strategy : strategies())
    EXPECT_EQ(test::error_of([&] {
                run_threads(strategy.ranks(), [&](Communicator& comm) {
                  Trainer trainer(net(), strategy, options(), comm);
                  trainer.step(data, std::vector<Index>{0, 1, 2, 3, 4});
                });
              }),
              "data set 'lying': sample 2 has the token 9 at place 2 of the input 'categories', but its vocabulary is "
              "7; tokens are whole numbers from 0 to 6");
}

TEST(Inputs, OfAnOwnBatchAreFilledByName) {
  run_threads(1, [](Communicator& comm) {
    Trainer trainer(net(), Strategy().schedule(ScheduleKind::gpipe, 2), options(), comm);
    const LocalBatch batch = trainer.make_batch(samples);
    ASSERT_EQ(batch.images.size(), 4U) << "two microbatches of two inputs";
    EXPECT_EQ(batch.images[3].input, "dense");
    const auto ones = [](Index, const Box&, std::span<double> values) { std::fill(values.begin(), values.end(), 1); };
    expect_error([&] { batch.fill_images(ones); }, {"the batch has 2 inputs", "'categories', 'dense'"});
    expect_error([&] { batch.fill_images("denes", ones); }, {"no input 'denes' (did you mean 'dense'?)"});
    batch.fill_images("dense", ones);
    EXPECT_EQ(batch.images[1].tensor.get(0), 1);
    EXPECT_EQ(batch.images[0].tensor.get(0), 0);
    LocalBatch less = batch;
    less.images.pop_back();
    expect_error([&] { trainer.step(less); }, {"not cut as this rank's training plan"});
  });
}

TEST(Inputs, AreNotShifted) {
  run_threads(1, [](Communicator& comm) {
    TrainerOptions moving = options();
    moving.augmentation.shift = 1;
    const auto data = make_synthetic(inputs(), samples, 2, 1, 0);
    Trainer trainer(net(), Strategy(), moving, comm);
    expect_error([&] { trainer.train_epoch(*data, {}); }, {"the model reads 2 inputs ('categories', 'dense')"});
  });
}

// A number that is not finite is found in the input that has it.
TEST(Inputs, WithoutFiniteNumbersAreNamed) {
  run_threads(1, [](Communicator& comm) {
    Trainer trainer(net(), Strategy(), options(), comm);
    const LocalBatch batch = trainer.make_batch(samples);
    batch.fill_images("dense", [](Index sample, const Box&, std::span<double> values) {
      values[0] = sample == 3 ? std::numeric_limits<double>::infinity() : 1;
    });
    expect_error([&] { trainer.step(batch); }, {"in the samples, the output of layer 'dense'"});
  });
}

}  // namespace
}  // namespace partita::test::inputs_test
