// The first microbatch of the next step, which travels to a device while a step computes: whatever a program does, each
// step computes on its own samples.
#include "partita/base/philox.hpp"
#include "partita/train/data/dataset.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/train/trainer/trainer_parts.hpp"
#include "test/support/cases.hpp"
#include "test/support/lazy_backend.hpp"

#include <gtest/gtest.h>

namespace partita::test::arrival_test {

namespace {

constexpr Index samples = 5, steps = 6;

Model classifier() {
  Model m("classifier");
  const auto x = m.input("in", {.channels = 2, .spatial = {5, 3}});
  m.softmax_cross_entropy("loss", m.linear("fc", m.relu("relu", m.instance_norm("norm", x)), {.features = 3}));
  return m;
}

/// Its targets are as large as its images.
Model autoencoder() {
  Model m("autoencoder");
  const auto x = m.input("in", {.channels = 2, .spatial = {5, 3}});
  m.mean_squared_error("loss", m.conv("conv", x, {.filters = 2, .kernel = 3, .padding = 1}));
  return m;
}

/// Drawn images, and labels or values as targets. One read fails.
class Drawn final : public Dataset {
 public:
  explicit Drawn(Index size, int failing = -1) : size_(size), failing_(failing) {}
  Shape sample() const override { return {{'C', 2}, {'H', 5}, {'W', 3}}; }
  Index size() const override { return size_; }
  Index classes() const override { return 3; }
  void hold(std::span<const Index>, const Box&) override {}
  void read(Index sample, const Box& box, std::span<double> out) const override {
    if (reads_++ == failing_) fail("a damaged sample");
    draw(sample, box, out);
  }
  std::int32_t label(Index sample) const override { return static_cast<std::int32_t>(sample % 3); }
  void read_target(Index sample, const Box& box, std::span<double> out) const override {
    draw(sample + 1000, box, out);
  }

 private:
  static void draw(Index sample, const Box& box, std::span<double> out) {
    auto to = out.begin();
    for (Index c = box[0].lo; c < box[0].hi; ++c)
      for (Index h = box[1].lo; h < box[1].hi; ++h)
        for (Index w = box[2].lo; w < box[2].hi; ++w) *to++ = Random(5, 2).normal(100 * sample + (c * 5 + h) * 3 + w);
  }
  Index size_;
  int failing_;
  mutable int reads_ = 0;
};

/// What a program does with a trainer. It notes losses.
using Program = std::function<void(Trainer& trainer, std::vector<double>& losses)>;

Trainer::Progress note(std::vector<double>& losses) {
  return [&losses](Index, Index, Index, const StepResult& step) { losses.push_back(step.loss); };
}

/// Runs the program on the CPU if there is no device.
std::vector<double> losses_of(const Program& program, const Model& model, const Strategy& strategy,
                              LazyDevice* device = nullptr, bool graphs = false) {
  std::vector<double> losses;
  run_threads(1, [&](Communicator& comm) {
    TrainerOptions o;
    o.batch = samples;
    o.epochs = 4;
    o.dtype = DType::f64;
    o.optimizer.rate = 0.05;
    o.backend = "reference";
    o.graphs = graphs;
    Trainer trainer(model, strategy, o, comm,
                    device != nullptr ? lazy_processor(comm, *device) : cpu_processor(comm, make_reference_backend()));
    program(trainer, losses);
  });
  if (device != nullptr) device->check();
  return losses;
}

/// Expects the losses of the CPU in many orders of operations, also where the stream of batches is the last to run.
void expect_own_samples(const Program& program) {
  Strategy two;
  two.schedule(ScheduleKind::gpipe, 2);
  for (const Model& model : {classifier(), autoencoder()})
    for (const Strategy& strategy : {Strategy(), two}) {
      const auto expected = losses_of(program, model, strategy);
      for (const bool graphs : {false, true})
        for (std::size_t starved = 0; starved < 6; ++starved) {
          SCOPED_TRACE(fmt::format("{}, {} microbatches, {} graphs, stream {} is starved", model.name(),
                                   strategy.microbatches(), graphs ? "with" : "without", starved));
          LazyDevice device(static_cast<unsigned>(starved) + 1);
          device.starve(starved);
          const auto found = losses_of(program, model, strategy, &device, graphs);
          ASSERT_EQ(found.size(), expected.size());
          for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-9) << "loss " << i;
        }
    }
}

}  // namespace

TEST(Arrival, EpochsFollowEachOther) {
  expect_own_samples([](Trainer& trainer, std::vector<double>& losses) {
    Drawn training(steps * samples), uneven(steps * samples - 2), test(2 * samples);
    for (int epoch = 0; epoch < 3; ++epoch) trainer.train_epoch(training, note(losses));
    losses.push_back(trainer.evaluate(test, {}).loss);
    trainer.train_epoch(training, note(losses));
    losses.push_back(trainer.evaluate(uneven, {}).loss);
  });
}

TEST(Arrival, AStoppedPassIsFollowedByAnother) {
  expect_own_samples([](Trainer& trainer, std::vector<double>& losses) {
    Drawn training(steps * samples), test(2 * samples + 1);
    for (const Index last : {4, 3}) {
      trainer.train_epoch(training, [&](Index, Index step, Index, const StepResult& result) {
        losses.push_back(result.loss);
        if (step == last) trainer.stop();
      });
      losses.push_back(trainer.evaluate(test, {}).loss);
    }
  });
}

TEST(Arrival, AFailedPassIsFollowedByAnother) {
  for (int failing = 0; failing < 2 * steps * samples; failing += 3)
    expect_own_samples([failing](Trainer& trainer, std::vector<double>& losses) {
      Drawn training(steps * samples), damaged(steps * samples, failing), test(2 * samples);
      try {
        while (trainer.steps_done() < 2 * steps) trainer.train_epoch(damaged, note(losses));
      } catch (const Error&) {
        losses.push_back(-1);
      }
      losses.push_back(trainer.evaluate(test, {}).loss);
      trainer.train_epoch(training, note(losses));
    });
}

}  // namespace partita::test::arrival_test
