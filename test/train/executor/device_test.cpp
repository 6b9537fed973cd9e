// A trainer on the test double of a device: its batches, predictions and checkpoints are those of the CPU, the CPU
// waits once a step, a missing event is found, and a call that fails ends the run with one message.
#include "examples/12_own_kernel.hpp"
#include "partita/base/philox.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/train/trainer/trainer_parts.hpp"
#include "test/support/cases.hpp"
#include "test/support/error_of.hpp"
#include "test/support/lazy_backend.hpp"
#include "test/support/need_hdf5.hpp"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <random>

namespace partita::test::device_test {

namespace {

constexpr Index samples = 5;

/// Extents that no grid here divides.
Model net() {
  Model m("net");
  auto t = m.input("in", {.channels = 2, .spatial = {5, 3}});
  t = m.conv("conv1", t, {.filters = 3, .kernel = 3, .padding = 1});
  t = m.relu("relu", m.batch_norm("norm", t));
  t = m.max_pool("pool", t, {.window = 2});
  t = m.linear("fc", t, {.features = 3});
  m.softmax_cross_entropy("loss", t);
  return m;
}

TrainerOptions options() {
  TrainerOptions o;
  o.check_replicas = 1;
  o.batch = samples;
  o.dtype = DType::f64;
  o.optimizer.rate = 0.05;
  o.optimizer.momentum = 0.9;
  o.backend = "reference";
  return o;
}

std::vector<Strategy> strategies() {
  std::vector<Strategy> all(6);
  all[1] = Strategy("data=2").layer("*", {.output = "N@data"}).optimizer_state(Strategy::OptimizerState::sharded);
  all[2] = Strategy("y=2").layer("*", {.output = "H@y"});
  all[3] = Strategy("c=2").layer("*", {.output = "C@c"});
  all[4] = Strategy("data=2 y=2").layer("*", {.output = "N@data H@y"}).schedule(ScheduleKind::gpipe, 2);
  all[5] = Strategy().group({"in", "norm"}).group({"relu", "loss"}).schedule(ScheduleKind::one_f_one_b, 3);
  return all;
}

void fill_batch(const LocalBatch& batch) {
  batch.fill_images([](Index sample, const Box& box, std::span<double> values) {
    Index next = 0;
    for (double& value : values) value = Random(7, 1).normal(100 * sample + box[1].lo + 31 * box[0].lo + next++);
  });
  batch.fill_targets([](Index sample, const Box&, std::span<double> values) {
    for (double& value : values) value = static_cast<double>(sample % 3);
  });
}

/// Trains two steps on a device, or on the CPU if there is none. Returns the losses and this rank's predictions.
std::vector<double> train(const Strategy& strategy, Communicator& comm, LazyDevice* device) {
  Trainer trainer(net(), strategy, options(), comm,
                  device != nullptr ? lazy_processor(comm, *device) : cpu_processor(comm, make_reference_backend()));
  const LocalBatch batch = trainer.make_batch(samples);
  fill_batch(batch);
  std::vector<double> numbers;
  for (int step = 0; step < 2; ++step) numbers.push_back(trainer.step(batch).loss);
  const LocalBatch other = trainer.make_batch(3, false);
  fill_batch(other);
  for (const auto& block : trainer.predict(other))
    block.read([&](Index, const Box&, std::span<const double> values) {
      numbers.insert(numbers.end(), values.begin(), values.end());
    });
  return numbers;
}

/// Runs on thread ranks; returns the numbers of rank 0.
std::vector<double> train(const Strategy& strategy, LazyDevice* device) {
  std::vector<double> numbers;
  run_threads(strategy.ranks(), [&](Communicator& comm) {
    const auto mine = train(strategy, comm, device);
    if (comm.rank() == 0) numbers = mine;
  });
  if (device != nullptr) device->check();
  return numbers;
}

/// Deletes a file when a test ends.
struct TemporaryFile {
  std::string path = (std::filesystem::temp_directory_path() / fmt::format("device_test_{}.h5", getpid())).string();
  ~TemporaryFile() { std::filesystem::remove(path); }
};

}  // namespace

TEST(Device, TrainsAndPredictsOnOwnTensorsAsTheCpuDoes) {
  for (const Strategy& strategy : strategies()) {
    SCOPED_TRACE(strategy.print());
    const auto expected = train(strategy, nullptr);
    for (unsigned seed = 1; seed <= (lengthy() ? 200U : 5U); ++seed) {
      LazyDevice device(seed);
      const auto found = train(strategy, &device);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-12) << "number " << i;
      EXPECT_EQ(device.blocks(), 0U) << "blocks of memory were not released";
    }
  }
}

/// The scale, the loss and whether the weights stayed, of steps of a model whose gradients overflow at first.
std::vector<std::array<double, 3>> overflowing_steps(LazyDevice* device) {
  Model m("large");
  m.mean_squared_error("loss", m.linear("fc", m.input("in", {.channels = 1, .spatial = {}}), {.features = 1}));
  Strategy strategy("data=2");
  strategy.layer("*", {.output = "N@data"});
  TrainerOptions o = options();
  o.batch = 2;
  o.dtype = DType::f16;
  o.optimizer = {.rate = 1e-3, .momentum = 0};
  std::vector<std::array<double, 3>> numbers;
  run_threads(2, [&](Communicator& comm) {
    Trainer trainer(m, strategy, o, comm,
                    device != nullptr ? lazy_processor(comm, *device) : cpu_processor(comm, make_reference_backend()));
    const LocalBatch batch = trainer.make_batch(2);
    batch.fill_images([](Index, const Box&, std::span<double> values) { std::fill(values.begin(), values.end(), 1); });
    batch.fill_targets(
        [](Index, const Box&, std::span<double> values) { std::fill(values.begin(), values.end(), 60); });
    for (int i = 0; i < 8; ++i) {
      const StepResult step = trainer.step(batch);
      if (comm.rank() == 0) numbers.push_back({trainer.loss_scale(), step.loss, step.skipped ? 1.0 : 0.0});
    }
  });
  return numbers;
}

TEST(Device, ScalesTheLossOfF16AsTheCpuDoes) {
  const auto expected = overflowing_steps(nullptr);
  EXPECT_EQ(expected.front()[2], 1) << "the first step must overflow";
  EXPECT_EQ(expected.back()[2], 0) << "the last one must not";
  LazyDevice device(9);
  const auto found = overflowing_steps(&device);
  device.check();
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i][0], expected[i][0]) << "scale after step " << i;
    EXPECT_NEAR(found[i][1], expected[i][1], 1e-3 * expected[i][1]) << "loss of step " << i;
    EXPECT_EQ(found[i][2], expected[i][2]) << "step " << i;
  }
}

TEST(Device, SavesAndLoadsTheCheckpointsOfTheCpu) {
  PARTITA_NEED_HDF5();
  const TemporaryFile of_cpu{}, of_device{of_cpu.path + ".device"};
  for (const Strategy& strategy : strategies()) {
    SCOPED_TRACE(strategy.print());
    LazyDevice device(3);
    run_threads(strategy.ranks(), [&](Communicator& comm) {
      Trainer cpu(net(), strategy, options(), comm);
      const LocalBatch batch = cpu.make_batch(samples);
      fill_batch(batch);
      cpu.step(batch);
      cpu.save(of_cpu.path);
      Trainer there(net(), strategy, options(), comm, lazy_processor(comm, device));
      there.load(of_cpu.path, true);
      there.save(of_device.path);
      Trainer back(net(), strategy, options(), comm);
      back.load(of_device.path, true);
      const auto first = TrainerParts::parameters(cpu).named(cpu.plan(), TrainerParts::gradient_grid(cpu), true);
      const auto last = TrainerParts::parameters(back).named(back.plan(), TrainerParts::gradient_grid(back), true);
      ASSERT_EQ(first.size(), last.size());
      for (std::size_t i = 0; i < first.size(); ++i)
        EXPECT_EQ(read(first[i].tensor.local, {}), read(last[i].tensor.local, {})) << first[i].name;
    });
    device.check();
  }
}

// Most of a rank's rows read no halo. The row beside the neighbor is computed again, from a copy of what it reads.
TEST(Device, HoldsThePredictedBordersOfConvolutionsThatComputeAhead) {
  Model m("rows");
  const auto t =
      m.conv("conv", m.input("in", {.channels = 2, .spatial = {24, 3}}), {.filters = 3, .kernel = 3, .padding = 1});
  m.mean_squared_error("loss", t);
  Strategy strategy("y=2");
  strategy.layer("*", {.output = "H@y"});
  LazyDevice device(5);
  run_threads(2, [&](Communicator& comm) {
    Trainer trainer(m, strategy, options(), comm, lazy_processor(comm, device));
    const LocalBatch batch = trainer.make_batch(samples);
    batch.fill_images([](Index, const Box&, std::span<double> values) { std::fill(values.begin(), values.end(), 1); });
    batch.fill_targets([](Index, const Box&, std::span<double> values) { std::fill(values.begin(), values.end(), 1); });
    trainer.step(batch);
    EXPECT_EQ(trainer.peak_memory().each[MemoryClass::workspace],
              trainer.predicted_memory().each[MemoryClass::workspace]);
    const Index packed =
        peak_memory(trainer.plan(), comm.rank(), {}, {.packs = true}).each[MemoryClass::workspace] + lazy_scratch_bytes;
    EXPECT_GT(trainer.peak_memory().each[MemoryClass::workspace], packed) << "the borders need more than the messages";
  });
}

TEST(Device, IsWaitedForOnceAStep) {
  for (const Strategy& strategy : strategies()) {
    SCOPED_TRACE(strategy.print());
    LazyDevice device(4);
    run_threads(strategy.ranks(), [&](Communicator& comm) {
      TrainerOptions o = options();
      o.check_replicas = 0;  // it reads the weights
      Trainer trainer(net(), strategy, o, comm, lazy_processor(comm, device));
      const LocalBatch batch = trainer.make_batch(samples);
      fill_batch(batch);
      trainer.step(batch);  // the first step makes what later ones use again
      const int before = device.host_waits();
      for (int step = 0; step < 3; ++step) trainer.step(batch);
      EXPECT_EQ(device.host_waits() - before, 3) << "on rank " << comm.rank();
    });
  }
}

/// Images of net(), of which it notes how often the device had been waited for when each was read.
class WatchedData final : public Dataset {
 public:
  WatchedData(LazyDevice& device, Index damaged) : device_(device), damaged_(damaged) {}
  Shape sample() const override { return {{'C', 2}, {'H', 5}, {'W', 3}}; }
  Index size() const override { return 4 * samples + 1; }
  Index classes() const override { return 3; }
  void hold(std::span<const Index>, const Box&) override {}
  void read(Index sample, const Box& box, std::span<double> out) const override {
    if (std::ssize(waits_) == damaged_) fail("a damaged sample");
    waits_.push_back(device_.host_waits());
    auto to = out.begin();
    for (Index c = box[0].lo; c < box[0].hi; ++c)
      for (Index h = box[1].lo; h < box[1].hi; ++h)
        for (Index w = box[2].lo; w < box[2].hi; ++w) *to++ = Random(5, 2).normal(100 * sample + (c * 5 + h) * 3 + w);
  }
  std::int32_t label(Index sample) const override { return static_cast<std::int32_t>(sample % 3); }
  const std::vector<int>& waits() const { return waits_; }

 private:
  LazyDevice& device_;
  Index damaged_;  // so many samples are read before one that cannot be
  mutable std::vector<int> waits_;
};

TEST(Device, ComputesWhileTheNextBatchIsRead) {
  for (const bool graphs : {false, true}) {
    LazyDevice device(4);
    run_threads(1, [&](Communicator& comm) {
      TrainerOptions o = options();
      o.graphs = graphs;
      Trainer trainer(net(), Strategy(), o, comm, lazy_processor(comm, device));
      WatchedData data(device, -1);
      std::vector<int> ended;  // waits after each step
      std::vector<Index> read;
      trainer.train_epoch(data, [&](Index, Index, Index, const StepResult&) {
        ended.push_back(device.host_waits());
        read.push_back(std::ssize(data.waits()));
      });
      constexpr Index all = 4 * samples + 1;
      EXPECT_EQ(read, (std::vector<Index>{3 * samples, 4 * samples, all, all, all})) << "two steps ahead";
      for (std::size_t step = 1; step < 5; ++step)
        EXPECT_LT(data.waits()[step * samples], ended[step - 1]) << "read after step " << step - 1 << " had ended";
    });
  }
}

TEST(Device, TrainsOnTheSamplesThatItReadsAhead) {
  for (const Strategy& strategy : strategies()) {
    const auto losses = [&](LazyDevice* device, bool graphs) {
      std::vector<double> all;
      LazyDevice counter(1);
      run_threads(strategy.ranks(), [&](Communicator& comm) {
        TrainerOptions o = options();
        o.graphs = graphs;
        o.augmentation = {.shift = 1, .flip = true};
        Trainer trainer(
            net(), strategy, o, comm,
            device != nullptr ? lazy_processor(comm, *device) : cpu_processor(comm, make_reference_backend()));
        WatchedData data(counter, -1);
        for (int epoch = 0; epoch < 2; ++epoch)
          trainer.train_epoch(data, [&](Index, Index, Index, const StepResult& step) {
            if (comm.rank() == 0) all.push_back(step.loss);
          });
      });
      if (device != nullptr) device->check();
      return all;
    };
    const auto expected = losses(nullptr, false);
    for (const bool graphs : {false, true}) {
      SCOPED_TRACE(strategy.print());
      LazyDevice device(3);
      const auto found = losses(&device, graphs);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-9) << "step " << i;
    }
  }
}

TEST(Device, ADamagedSampleThatIsReadAheadEndsItsOwnStep) {
  LazyDevice device(4);
  run_threads(1, [&](Communicator& comm) {
    Trainer trainer(net(), Strategy(), options(), comm, lazy_processor(comm, device));
    WatchedData data(device, 2 * samples + 1);
    int steps = 0;
    EXPECT_EQ(message_of([&] { trainer.train_epoch(data, [&](auto&&...) { ++steps; }); }), "a damaged sample");
    EXPECT_EQ(steps, 2);
  });
}

/// y = x, made of functions that take a stream.
class Same : public CustomLayer {
 public:
  explicit Same(bool on_devices) : on_devices_(on_devices) {}
  std::string_view kind() const override { return "same"; }
  bool runs_on_devices() const override { return on_devices_; }
  Shape output(std::span<const Shape> inputs) const override { return inputs[0]; }
  OperatorLayouts layouts(const LayoutRequest& request) const override {
    const Layout x = request.input[0].value_or(request.output).with_partial(0);
    return {.x = {x}, .y = x, .dx = {x}, .w = {}, .dw = {}};
  }
  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    copy_box(x[0], y, y.box(), call.rank.stream);
  }
  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    copy_box(dy, dx[0], dy.box(), call.rank.stream);
  }

 private:
  bool on_devices_;
};

TEST(Device, RefusesLayersThatComputeOnTheCpu) {
  const auto loss = [](bool on_devices, LazyDevice* device) {
    Model m("own");
    auto t = m.input("in", {.channels = 2, .spatial = {3}});
    t = m.layer("mine", std::make_shared<Same>(on_devices), {t});
    m.softmax_cross_entropy("loss", m.linear("fc", t, {.features = 3}));
    double result = 0;
    run_threads(1, [&](Communicator& comm) {
      Trainer trainer(
          m, Strategy(), options(), comm,
          device != nullptr ? lazy_processor(comm, *device) : cpu_processor(comm, make_reference_backend()));
      const LocalBatch batch = trainer.make_batch(samples);
      fill_batch(batch);
      for (int step = 0; step < 2; ++step) result = trainer.step(batch).loss;
    });
    return result;
  };
  LazyDevice device(6);
  EXPECT_NE(message_of([&] { loss(false, &device); }).find("layer 'mine' of kind 'same' computes on the CPU only"),
            std::string::npos);
  EXPECT_NEAR(loss(true, &device), loss(false, nullptr), 1e-12);
}

TEST(Device, RunsTheKernelsOfAnOwnLayer) {
  Model m("own");
  auto t = m.input("in", {.channels = 2, .spatial = {5, 3}});
  t = m.conv("conv", t, {.filters = 3, .kernel = 3, .padding = 1});
  t = m.layer("learned", std::make_shared<own_kernel::LearnedRelu>(), {t});
  m.softmax_cross_entropy("loss", m.linear("fc", t, {.features = 3}));
  for (const Strategy& strategy : {Strategy(), strategies()[4]})
    for (const DType dtype : {DType::f64, DType::f32}) {
      const auto losses = [&](LazyDevice* device) {
        std::vector<double> all;
        run_threads(strategy.ranks(), [&](Communicator& comm) {
          TrainerOptions o = options();
          o.dtype = dtype;
          Trainer trainer(
              m, strategy, o, comm,
              device != nullptr ? lazy_processor(comm, *device) : cpu_processor(comm, make_reference_backend()));
          const LocalBatch batch = trainer.make_batch(samples);
          fill_batch(batch);
          for (int step = 0; step < 4; ++step)
            if (const double loss = trainer.step(batch).loss; comm.rank() == 0) all.push_back(loss);
        });
        return all;
      };
      LazyDevice device(7);
      const auto there = losses(&device), here = losses(nullptr);
      device.check();
      ASSERT_EQ(there.size(), here.size());
      for (std::size_t step = 0; step < here.size(); ++step)
        EXPECT_NEAR(there[step], here[step], dtype == DType::f64 ? 1e-12 : 1e-5) << "step " << step;
    }
}

TEST(Device, AMissingEventIsFoundInATraining) {
  int missing = 0, races = 0;
  for (std::size_t s = 1; s < strategies().size(); ++s) {
    const Strategy strategy = strategies()[s];
    SCOPED_TRACE(strategy.print());
    LazyDevice whole(5);
    const auto expected = train(strategy, &whole);
    std::mt19937 random(static_cast<unsigned>(s));
    for (int i = 0; i < (lengthy() ? 100 : 12); ++i) {
      LazyDevice device(random());
      device.forget_wait(1 + static_cast<int>(random() % static_cast<unsigned>(whole.waits())));
      std::vector<double> found;
      const std::string message = message_of([&] { found = train(strategy, &device); });
      if (device.missed()) ++missing;
      if (!message.empty()) {
        EXPECT_TRUE(device.missed()) << message;
        EXPECT_NE(message.find("a race: '"), std::string::npos) << message;
        ++races;
      } else {  // memory that nobody had used before needs no order
        ASSERT_EQ(found.size(), expected.size());
        for (std::size_t k = 0; k < found.size(); ++k) ASSERT_NEAR(found[k], expected[k], 1e-12) << "number " << k;
      }
    }
  }
  EXPECT_GE(2 * races, missing) << "most events that were not waited for must be noticed";
  EXPECT_GE(races, 10);
}

TEST(Device, ACallThatFailsEndsTheRunWithOneMessage) {
  for (const std::size_t s : {1U, 2U, 5U}) {
    const Strategy strategy = strategies()[s];
    SCOPED_TRACE(strategy.print());
    LazyDevice whole(6);
    train(strategy, &whole);
    constexpr int calls = 40;
    for (int i = 0; i < calls; ++i) {
      const int failing = 1 + i * (whole.calls() - 1) / calls;
      LazyDevice device(static_cast<unsigned>(i));
      device.fail_at(failing);
      const std::string message = message_of([&] { train(strategy, &device); });
      EXPECT_EQ(message.find(fmt::format("the call {} of the device fails", failing)), 0U) << message;
      EXPECT_EQ(device.blocks(), 0U) << "blocks of memory were not released after call " << failing;
    }
  }
}

}  // namespace partita::test::device_test
