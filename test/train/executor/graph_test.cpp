// Steps that a device captures as graphs and launches again: they compute what steps without graphs compute, and what
// changes from step to step does so in a launch as well.
#include "partita/base/philox.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/train/data/dataset.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/device/profile.hpp"
#include "src/train/trainer/trainer_parts.hpp"
#include "test/support/card.hpp"
#include "test/support/cases.hpp"
#include "test/support/error_of.hpp"
#include "test/support/lazy_backend.hpp"
#include "test/support/lazy_nccl.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

namespace partita::test::graph_test {

namespace {

constexpr Index samples = 5;

/// Layers whose results depend on the number of the step, and on the steps before.
Model net() {
  Model m("net");
  auto t = m.input("in", {.channels = 2, .spatial = {5, 3}});
  t = m.conv("conv", t, {.filters = 3, .kernel = 3, .padding = 1});
  t = m.dropout("drop", m.relu("relu", m.batch_norm("norm", t)), {.rate = 0.3});
  m.softmax_cross_entropy("loss", m.linear("fc", t, {.features = 3}));
  return m;
}

TrainerOptions options(bool graphs) {
  TrainerOptions o;
  o.batch = samples;
  o.dtype = DType::f64;
  o.optimizer.rate = 0.05;
  o.optimizer.momentum = 0.9;
  o.graphs = graphs;
  return o;
}

/// Halos, sums, shards of the optimizer, stages.
std::vector<Strategy> sharded_strategies() {
  std::vector<Strategy> all(8);
  all[0] = Strategy("data=2").layer("*", {.output = "N@data"}).optimizer_state(Strategy::OptimizerState::sharded);
  all[1] = Strategy("y=3").layer("*", {.output = "H@y"});
  all[2] = Strategy("c=2").layer("*", {.output = "C@c"});
  all[3] = Strategy("data=2 y=2").layer("*", {.output = "N@data H@y"}).schedule(ScheduleKind::gpipe, 2);
  all[4] = Strategy().group({"in", "norm"}).group({"relu", "loss"}).schedule(ScheduleKind::one_f_one_b, 3);
  all[5] = Strategy("data=2").layer("*", {.output = "N@data"}).layer("conv", {.recompute = true});
  all[6] = Strategy().group({"in", "norm"}).group({"relu", "loss"}).schedule(ScheduleKind::chimera, 4);
  all[7] = Strategy().group({"in", "conv"}).group({"norm", "norm"}).group({"relu", "drop"}).group({"fc", "loss"});
  all[7].schedule(ScheduleKind::zb_v, 2);
  return all;
}

void fill_batch(const LocalBatch& batch, double first) {
  batch.fill_images([&](Index sample, const Box&, std::span<double> values) {
    Index next = 0;
    for (double& value : values) value = Random(7, 1).normal(100 * sample + next++) + first;
  });
  batch.fill_targets([](Index sample, const Box&, std::span<double> values) {
    for (double& value : values) value = static_cast<double>(sample % 3);
  });
}

/// What a training gave on one rank.
struct Trained {
  std::vector<double> losses, weights;
  Index launched = 0;
};

/// Trains on one rank. `between` is called before each step, and returns the batch of the step.
template <class Between>
Trained train_rank(const Model& model, const Strategy& strategy, const TrainerOptions& options, int steps,
                   Communicator& comm, Processor processor, Between&& between) {
  Trained result;
  Trainer trainer(model, strategy, options, comm, std::move(processor));
  for (int step = 0; step < steps; ++step) {
    const StepResult done = trainer.step(between(trainer, step));
    const double loss = std::isfinite(done.loss) ? done.loss : -1;
    result.losses.insert(result.losses.end(), {loss, done.skipped ? 1.0 : 0.0, trainer.loss_scale()});
  }
  for (const auto& [name, tensor] : trainer.weights()) {
    const auto values = read(tensor.local, trainer.stream());
    result.weights.insert(result.weights.end(), values.begin(), values.end());
  }
  result.launched = TrainerParts::executor(trainer, samples, true).launched();
  EXPECT_EQ(trainer.measured(), trainer.predicted());
  return result;
}

/// One rank computes on the card of PARTITA_DEVICE, if that is set. Several ranks exchange messages by NCCL.
Processor processor(Communicator& comm, LazyDevice& device, LazyNccl& library, DType dtype) {
  const auto by_nccl = [&] { return make_nccl(comm, device, library); };
  if (comm.size() > 1) return {device, by_nccl(), by_nccl(), make_lazy_backend(device)};
  if (card() == nullptr) return lazy_processor(comm, device);
  const auto alone = [&] { return make_device_threads(comm, *card(), std::chrono::seconds(60)); };
  return {*card(), alone(), alone(), make_cuda_backend(*card(), {.dtype = dtype})};
}

/// Trains on the ranks of a strategy, which exchange messages by NCCL. `make` makes what is called before each step.
template <class Make>
std::vector<Trained> train(const Model& model, const Strategy& strategy, const TrainerOptions& options, int steps,
                           Make&& make, unsigned seed) {
  std::vector<Trained> ranks(static_cast<std::size_t>(strategy.ranks()));
  LazyDevice device(seed);
  const auto wire = std::make_shared<LazyWire>();
  run_threads(strategy.ranks(), [&](Communicator& comm) {
    LazyNccl library(device, wire);
    ranks[comm.rank()] = train_rank(model, strategy, options, steps, comm,
                                    processor(comm, device, library, options.dtype), make(comm.rank()));
  });
  device.check();
  EXPECT_TRUE(options.graphs || device.launches() == 0);
  return ranks;
}

/// Expects the same numbers with and without graphs. Returns how many steps each rank has launched.
template <class Make>
Index expect_same(TrainerOptions options, int steps, Make&& make, const Strategy& strategy = {},
                  const Model& model = net()) {
  SCOPED_TRACE(strategy.print());
  const auto train_with = [&](bool graphs, unsigned seed) {
    options.graphs = graphs;
    return train(model, strategy, options, steps, make, seed);
  };
  const auto launched = train_with(true, 3), live = train_with(false, 4);
  for (std::size_t rank = 0; rank < live.size(); ++rank) {
    SCOPED_TRACE(rank);
    EXPECT_EQ(launched[rank].losses, live[rank].losses);
    EXPECT_EQ(launched[rank].weights, live[rank].weights);
    EXPECT_EQ(launched[rank].launched, launched[0].launched);
  }
  return launched[0].launched;
}

/// Two batches in turns.
auto in_turns(int /*rank*/ = 0) {
  return [batches = std::array<LocalBatch, 2>{}](Trainer& trainer, int step) mutable -> const LocalBatch& {
    LocalBatch& batch = batches[step % 2];
    if (step < 2) batch = trainer.make_batch(samples);
    fill_batch(batch, step);
    return batch;
  };
}

}  // namespace

TEST(Graph, StepsThatRepeatThemselvesAreLaunched) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    TrainerOptions o = options(true);
    o.dtype = dtype;
    // The first step takes memory, the second one uses it, the third one is captured.
    EXPECT_EQ(expect_same(o, 8, in_turns), 5);
    EXPECT_EQ(expect_same(o, 8, in_turns, Strategy().schedule(ScheduleKind::gpipe, 2)), 5);
    EXPECT_EQ(expect_same(o, 8, in_turns, Strategy().optimizer_state(Strategy::OptimizerState::sharded)), 5);
  }
}

TEST(Graph, RanksLaunchTheirMessagesToo) {
  for (const Strategy& strategy : sharded_strategies())
    EXPECT_EQ(expect_same(options(true), 6, in_turns, strategy), 3) << strategy.print();
}

// In a pass over a data set, the first microbatch of a step travels while the step before computes.
TEST(Graph, StepsOfAPassAreLaunched) {
  std::vector<Strategy> all = sharded_strategies();
  all.insert(all.begin(), Strategy());
  for (const Strategy& strategy : all) {
    SCOPED_TRACE(strategy.print());
    const auto losses = [&](bool graphs, unsigned seed) {
      std::vector<double> each;
      LazyDevice device(seed);
      const auto wire = std::make_shared<LazyWire>();
      run_threads(strategy.ranks(), [&](Communicator& comm) {
        LazyNccl library(device, wire);
        TrainerOptions o = graph_test::options(graphs);
        o.epochs = 2;
        Trainer trainer(net(), strategy, o, comm, processor(comm, device, library, DType::f64));
        const auto data = make_synthetic({{'C', 2}, {'H', 5}, {'W', 3}}, {}, 8 * samples, 3, 1, 0);
        for (int epoch = 0; epoch < 2; ++epoch) {
          trainer.train_epoch(*data, [&](Index, Index, Index, const StepResult& step) {
            if (comm.rank() == 0) each.push_back(step.loss);
          });
          trainer.evaluate(*data, {});
        }
        // Of 8 steps the first waits for its batch, the second uses the memory that the third is captured with, and the
        // last has no next batch. The second epoch may find the buffers of the first one.
        EXPECT_GE(TrainerParts::executor(trainer, samples, true).launched(), graphs ? 2 * 4 : 0);
      });
      device.check();
      return each;
    };
    EXPECT_EQ(losses(true, 3), losses(false, 4));
  }
}

// Targets that are far away make gradients exceed the range of f16, so that the scale is halved.
TEST(Graph, AnotherScaleOfTheLossCapturesAnew) {
  Model far("far");
  far.mean_squared_error("loss", far.linear("fc", far.input("in", {.channels = 1, .spatial = {}}), {.features = 1}));
  TrainerOptions o = options(true);
  o.dtype = DType::f16;
  o.optimizer = {.rate = 1e-3, .momentum = 0};
  const auto far_away = [](int) {
    return [batch = LocalBatch()](Trainer& trainer, int step) mutable -> const LocalBatch& {
      if (step == 0) batch = trainer.make_batch(samples);
      const auto fill = [](double value) {
        return [value](Index, const Box&, std::span<double> values) { std::fill(values.begin(), values.end(), value); };
      };
      batch.fill_images(fill(1));
      batch.fill_targets(fill(step == 10 ? 900 : 60));
      return batch;
    };
  };
  const auto ranks = train(far, Strategy(), o, 14, far_away, 3);
  const double early = ranks[0].losses[3 * 8 + 2], late = ranks[0].losses[3 * 12 + 2];
  EXPECT_LT(late, early) << "the scale must change after steps were launched";
  const Index launched = expect_same(o, 14, far_away, Strategy(), far);
  EXPECT_GE(launched, 5);
  EXPECT_LE(launched, 14 - 3 - 1);
}

TEST(Graph, AStepThatIsSkippedKeepsItsStatistics) {
  TrainerOptions o = options(true);
  o.on_nan = OnNan::skip;
  const auto broken_once = [](int) {
    return [inner = in_turns()](Trainer& trainer, int step) mutable -> const LocalBatch& {
      const LocalBatch& batch = inner(trainer, step);
      if (step == 5) fill_batch(batch, std::numeric_limits<double>::quiet_NaN());
      return batch;
    };
  };
  EXPECT_EQ(expect_same(o, 9, broken_once), 6);
}

TEST(Graph, MemoryThatSomebodyElseHoldsIsNotOverwritten) {
  // On rank 0, from step 4 to step 8, of sizes that a step uses. All ranks then run their steps without graphs.
  const auto holding = [](int rank) {
    return [rank, held = std::vector<Tensor>(), inner = in_turns()](Trainer& trainer,
                                                                    int step) mutable -> const LocalBatch& {
      if (step == 4 && rank == 0)
        for (const Index elements : {1, 10, 75, 90, 150, 225})
          for (int i = 0; i < 3; ++i)
            held.emplace_back(DType::f64, "F", Box(Shape{{'F', elements}}), trainer.allocator(),
                              MemoryClass::activations);
      if (step == 8) {
        for (const Tensor& tensor : held)
          for (const double value : read(tensor, trainer.stream())) EXPECT_EQ(value, 0);
        held.clear();
      }
      return inner(trainer, step);
    };
  };
  for (const Strategy& strategy : {Strategy(), sharded_strategies()[0]}) {
    const Index launched = expect_same(options(true), 12, holding, strategy);
    EXPECT_GE(launched, 3);
    EXPECT_LE(launched, 12 - 3 - 2) << "the steps after both changes begin differently";
  }
}

TEST(Graph, OtherWorkBetweenStepsChangesNothing) {
  const auto with_predictions = [](int) {
    return [inner = in_turns()](Trainer& trainer, int step) mutable -> const LocalBatch& {
      if (step >= 3) {
        const LocalBatch other = trainer.make_batch(3, false);
        fill_batch(other, step);
        trainer.predict(other);
      }
      if (step == 5) {
        const LocalBatch other = trainer.make_batch(2);
        fill_batch(other, step);
        trainer.step(other);
      }
      return inner(trainer, step);
    };
  };
  EXPECT_EQ(expect_same(options(true), 8, with_predictions), 5);
}

TEST(Graph, ABatchInOtherMemoryIsCopied) {
  const auto own_tensors = [](int) {
    return [batch = LocalBatch()](Trainer& trainer, int step) mutable -> const LocalBatch& {
      batch = trainer.make_batch(samples);
      fill_batch(batch, step);
      for (auto& block : batch.images) {
        const Tensor own(block.tensor.dtype(), block.tensor.names(), block.tensor.box());
        copy_box(block.tensor, own, own.box(), {});
        block.tensor = own;
      }
      return batch;
    };
  };
  EXPECT_EQ(expect_same(options(true), 6, own_tensors), 3);
}

// A model whose targets are its images, at first.
TEST(Graph, ImagesThatAreTargetsTooMayBecomeOthers) {
  Model same("same");
  const auto in = same.input("in", {.channels = 2, .spatial = {5, 3}});
  same.mean_squared_error("loss", same.conv("conv", in, {.filters = 2, .kernel = 3, .padding = 1}));
  const auto apart_later = [](int) {
    return [batch = LocalBatch()](Trainer& trainer, int step) mutable -> const LocalBatch& {
      batch = trainer.make_batch(samples);
      auto &images = batch.images[0], &targets = batch.targets[0];
      fill(images.tensor, images.shape, [&](Index i) { return Random(1, 1).normal(i) + step; });
      if (step < 5)
        targets.tensor = images.tensor;
      else
        fill(targets.tensor, targets.shape, [](Index i) { return Random(2, 1).normal(i); });
      return batch;
    };
  };
  EXPECT_EQ(expect_same(options(true), 8, apart_later, Strategy(), same), 5);
}

TEST(Graph, MemoryThatWasGivenBackIsNotUsed) {
  TrainerOptions o = options(true);
  o.memory_limit = 1 << 20;
  const auto large_between = [](int) {
    return [inner = in_turns()](Trainer& trainer, int step) mutable -> const LocalBatch& {
      const LocalBatch& batch = inner(trainer, step);
      if (step == 5) {  // it fits only if what was released is given back
        const Index left = (1 << 20) - trainer.allocator()->now().total();
        Tensor(DType::f64, "F", Box(Shape{{'F', left / 8 - 8}}), trainer.allocator(), MemoryClass::activations);
      }
      return batch;
    };
  };
  const Index launched = expect_same(o, 12, large_between);
  EXPECT_GE(launched, 4);
  EXPECT_LE(launched, 12 - 3 - 2);
}

TEST(Graph, AllRanksRunWithoutGraphsWhereOneIsProfiled) {
  const auto profiled = [](int rank) {
    return [rank, profile = std::shared_ptr<Profile>(), inner = in_turns()](Trainer& trainer,
                                                                            int step) mutable -> const LocalBatch& {
      profile.reset();
      if (step == 4 && rank == 0) profile = std::make_shared<Profile>(trainer.device(), trainer.stream());
      return inner(trainer, step);
    };
  };
  EXPECT_EQ(expect_same(options(true), 8, profiled, sharded_strategies()[0]), 4);
}

TEST(Graph, ADataSetThatFailsInACaptureEndsIt) {
  const auto losses = [](bool fails) {
    std::vector<double> all;
    LazyDevice device(8);
    run_threads(1, [&](Communicator& comm) {
      Trainer trainer(net(), Strategy().schedule(ScheduleKind::gpipe, 2), options(true), comm,
                      lazy_processor(comm, device));
      auto batches = in_turns();
      for (int step = 0; step < 6; ++step) {
        const LocalBatch& batch = batches(trainer, step);
        if (step == 2 && fails) {
          const auto read = [&](int microbatch) -> Batch {
            if (microbatch == 1) fail("the file is damaged");
            return {{batch.images[0].tensor}, batch.targets[0].tensor};
          };
          EXPECT_EQ(message_of([&] { TrainerParts::executor(trainer, samples, true).run(read, 2, 0.05); }),
                    "the file is damaged");
          EXPECT_FALSE(device.active());
        }
        all.push_back(trainer.step(batch).loss);
      }
      EXPECT_GE(TrainerParts::executor(trainer, samples, true).launched(), 1);
    });
    device.check();
    return all;
  };
  EXPECT_EQ(losses(true), losses(false));
}

TEST(Graph, ABatchOnTheDeviceIsRefused) {
  LazyDevice device(8);
  run_threads(1, [&](Communicator& comm) {
    Trainer trainer(net(), Strategy(), options(true), comm, lazy_processor(comm, device));
    auto batches = in_turns();
    for (int step = 0; step < 2; ++step) trainer.step(batches(trainer, step));
    const auto read = [&](int) -> Batch {
      const LocalBatch& batch = batches(trainer, 2);
      const Tensor& images = batch.images[0].tensor;
      return {{Tensor(images.dtype(), images.names(), images.box(), trainer.allocator(), MemoryClass::activations)},
              batch.targets[0].tensor};
    };
    const std::string message = message_of([&] { TrainerParts::executor(trainer, samples, true).run(read, 2, 0.05); });
    EXPECT_NE(message.find("--no-graph"), std::string::npos) << message;
  });
}

TEST(Graph, IsWaitedForOnceAStep) {
  LazyDevice device(4);
  run_threads(1, [&](Communicator& comm) {
    Trainer trainer(net(), Strategy(), options(true), comm, lazy_processor(comm, device));
    auto batches = in_turns();
    for (int step = 0; step < 2; ++step) trainer.step(batches(trainer, step));
    const int before = device.host_waits();
    for (int step = 2; step < 6; ++step) trainer.step(batches(trainer, step));
    EXPECT_EQ(device.host_waits() - before, 4);
    EXPECT_EQ(TrainerParts::executor(trainer, samples, true).launched(), 3);
  });
}

TEST(Graph, TheDoubleRefusesWhatACaptureCannotHold) {
  LazyDevice device(2);
  const Stream stream = device.make_stream(Priority::normal), other = device.make_stream(Priority::normal);
  void* data = device.allocate(64);
  std::array<std::byte, 64> pageable{};
  const auto refused = [&](const std::function<void()>& call) {
    const std::string message = message_of([&] { capture(device, stream, call); });
    EXPECT_FALSE(device.active());
    return message;
  };
  EXPECT_EQ(refused([&] { device.zero(data, 64, stream); }), "");
  EXPECT_NE(refused([&] { device.finish(stream); }).find("cannot wait for a stream"), std::string::npos);
  EXPECT_NE(refused([&] { device.allocate(64); }).find("cannot allocate memory"), std::string::npos);
  EXPECT_NE(refused([&] { device.release(data); }).find("cannot release memory"), std::string::npos);
  EXPECT_NE(refused([&] { device.copy(pageable.data(), data, 64, stream); }).find("not staging"), std::string::npos);
  EXPECT_NE(refused([&] { device.zero(data, 64, other); }).find("not part of the capture"), std::string::npos);
  EXPECT_EQ(refused([&] {
              device.wait(other, device.record(stream));
              device.zero(data, 64, other);
            }),
            "");
  device.finish(stream);
  device.release(data);
}

// A card spends a few microseconds on each operation of a graph, whatever it computes. A convolution counts as one
// operation here; an engine of cuDNN may start several kernels.
TEST(Graph, AStepOfResNet50HasFewOperations) {
  TrainerOptions options = graph_test::options(true);
  options.dtype = DType::bf16;
  LazyDevice device(5);
  int calls = 0;  // of the last step: a launch, the wait for its numbers and the update
  run_threads(1, [&](Communicator& comm) {
    Trainer trainer(builtin_model("resnet50", {.extent = 32, .width = 0.125}), {}, options, comm,
                    lazy_processor(comm, device));
    auto batches = in_turns();
    for (int step = 0; step < 5; ++step) {
      const int before = device.calls();
      trainer.step(batches(trainer, step));
      calls = device.calls() - before;
    }
  });
  device.check();
  int all = 0;
  std::string text;
  for (const auto& [what, count] : device.captured()) {
    all += count;
    text += fmt::format("{} {}\n", count, what);
  }
  EXPECT_LE(all, 450) << text;
  EXPECT_LE(calls, 12);
}

}  // namespace partita::test::graph_test
