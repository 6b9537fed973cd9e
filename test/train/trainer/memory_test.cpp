// The predicted memory of a whole run is the memory that it holds, to the byte: full and last batches, evaluation, data
// sets. A memory limit is never exceeded. Messages travel inside one node, between threads, or between the false
// devices of the tests, where layers compute ahead of their halos. Cases are drawn from seeds: PARTITA_SEED=n runs only
// that case, PARTITA_CASES=n sets the number of cases.
#include "partita/layouts/interior.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/schedule/generators.hpp"
#include "partita/train/checkpoint/checkpoint.hpp"
#include "partita/train/kernels/custom_layer.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/train/trainer/run_memory.hpp"
#include "src/train/trainer/trainer_parts.hpp"
#include "test/support/cases.hpp"
#include "test/support/diffusion_rule.hpp"
#include "test/support/lazy_backend.hpp"
#include "test/support/master.hpp"
#include "test/support/one_node.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <random>

namespace partita::test::memory_test {
namespace {

/// Drawn data that is read into memory when it is announced.
class LoadedData final : public DatasetOfInputs {
 public:
  explicit LoadedData(DrawnData data) : data_(std::move(data)), images_(data_.inputs().size()) {}
  std::vector<SampleInput> inputs() const override { return data_.inputs(); }
  Shape target() const override { return data_.target(); }
  Index size() const override { return data_.size(); }
  Index classes() const override { return data_.classes(); }
  void hold_input(int input, std::span<const Index> samples, const Box& box) override {
    images_[input].assign(samples.size() * static_cast<std::size_t>(box.volume()), 0);
  }
  void hold_targets(std::span<const Index> samples, const Box& box) override {
    targets_.assign(samples.size() * volume(box), 0);
  }
  Index held_bytes() const override {
    std::size_t held = targets_.size();
    for (const auto& images : images_) held += images.size();
    return static_cast<Index>(held * sizeof(float));
  }
  Index bytes_to_hold_inputs(std::span<const SampleShare> inputs, Index targets, const Box& target_box) const override {
    Index held = targets * static_cast<Index>(volume(target_box));
    for (const auto& [samples, box] : inputs) held += samples * box.volume();
    return held * Index{sizeof(float)};
  }
  void read_input(int input, Index sample, const Box& box, std::span<double> out) const override {
    data_.read_input(input, sample, box, out);
  }
  void read_target(Index sample, const Box& box, std::span<double> out) const override {
    data_.read_target(sample, box, out);
  }
  void read_labels(Index sample, const Box& box, std::span<std::int32_t> out) const override {
    data_.read_labels(sample, box, out);
  }

 private:
  static std::size_t volume(const Box& box) { return box.dims() == 0 ? 1 : static_cast<std::size_t>(box.volume()); }

  DrawnData data_;
  std::vector<std::vector<float>> images_;  // by input
  std::vector<float> targets_;
};

const std::vector<std::string> kinds{"gpipe",   "1f1b",        "zb-h1", "zb-h2",  "zb-1p", "zb-2p",
                                     "chimera", "interleaved", "zb-v",  "v-half", "v-min", "dualpipe-v"};

/// Two stages on equal grids, with about equal numbers of layers in each group. Few drawn strategies allow all kinds.
Strategy staged(const Model& model, const std::string& kind, const std::string& grid, int microbatches) {
  const auto& layers = model.layers();
  const int groups = 2 * default_groups_per_stage(parse_schedule_kind(kind));
  if (static_cast<int>(layers.size()) < groups) return staged(model, "1f1b", grid, microbatches);
  Strategy strategy;
  std::size_t first = 0;
  for (const Index count : balanced_counts(static_cast<Index>(layers.size()), groups)) {
    const std::size_t last = first + static_cast<std::size_t>(count) - 1;
    strategy.group({layers[first].name, layers[last].name, Grid::parse(grid)});
    first = last + 1;
  }
  strategy.schedule(kind, microbatches);
  if (!grid.empty()) strategy.layer("*", {.output = "N@a"});
  return strategy;
}

/// How ranks send messages: inside one node, between threads, from device to device, or between devices through the
/// memory of the CPU. Only the first way makes no progress by itself.
enum class Transport : std::uint8_t { one_node, threads, copies, staged };

/// A drawn run: one or two epochs of training and an evaluation.
struct Run {
  RandomCase drawn;
  TrainerOptions options;
  Index samples = 1, test_samples = 1;
  bool prepares = true;  // the test set is announced before training
  bool saves = false;    // it saves and loads a checkpoint after training
  bool often = false;    // and saves it after every step
  double limit = 1;      // memory limit, as a fraction of the memory that the run needs
  Transport transport = Transport::one_node;

  explicit Run(std::uint64_t seed) : drawn(seed) {
    constexpr std::array transports{Transport::one_node, Transport::threads,  Transport::one_node, Transport::copies,
                                    Transport::threads,  Transport::one_node, Transport::staged};
    transport = transports[seed % transports.size()];
    std::mt19937_64 random(seed + 1000);
    const auto below = [&](Index n) { return static_cast<Index>(random() % static_cast<std::uint64_t>(n)); };
    const Index batch = drawn.batch;
    if (seed % 3 == 0) {
      drawn.strategy = staged(drawn.model, kinds[static_cast<std::size_t>(seed / 3) % kinds.size()],
                              below(2) == 0 ? "" : "a=2", static_cast<int>(1 + below(5)));
      if (below(2) == 0) drawn.strategy.optimizer_state(Strategy::OptimizerState::sharded);
      drawn.strategy.bucket_bytes(std::array{Index{1}, Index{300}, Index{1} << 20}[below(3)]);
    }
    samples = std::max<Index>(1, batch * below(3) + below(batch));  // often fewer than microbatches in the last batch
    test_samples = 1 + below(2 * batch);
    prepares = below(2) == 0;
    saves = below(8) == 0 && !hdf5_version().empty();
    limit = 0.5 + 0.01 * static_cast<double>(below(61));
    options.batch = batch;
    options.epochs = 1 + below(2);
    options.dtype = std::array{DType::f64, DType::f64, DType::f32, DType::bf16}[below(4)];
    options.optimizer = drawn.optimizer;
    options.optimizer.rate = 1e-6;  // so that no loss overflows
    options.backend = "reference";
    options.overlap = below(2) == 0;
    options.on_nan = below(3) == 0 ? OnNan::skip : OnNan::stop;
    often = below(2) == 0;
  }

  std::string print() const {
    constexpr std::array ways{"in one node", "between threads", "between devices", "staged"};
    return fmt::format("{}\n{}, {}, {} of {} samples, then {}{}{}", drawn.print(),
                       ways[static_cast<std::size_t>(transport)], name(options.dtype), counted(options.epochs, "epoch"),
                       samples, test_samples,
                       std::string(prepares ? ", prepared" : "") + (saves ? often ? ", saved often" : ", saved" : "") +
                           (options.on_nan == OnNan::skip ? ", may skip steps" : ""),
                       options.overlap ? "" : ", no overlap");
  }

  LoadedData data(Index size) const { return LoadedData(data_of(drawn.model, size)); }
};

struct RankMemory {
  MemoryPeak held, predicted, forecast;
  bool refused = false;
};

/// The trainer of a rank, how its messages use memory, and what it holds beside tensors.
struct Made {
  std::unique_ptr<Trainer> trainer;
  MessageMemory messages;
  BesideTensors beside{};
};

Made make_trainer(const Run& run, const TrainerOptions& options, Communicator& comm, LazyDevice& device) {
  const Model& model = run.drawn.model;
  const Strategy& strategy = run.drawn.strategy;
  if (run.transport == Transport::one_node || run.transport == Transport::threads)
    return {std::make_unique<Trainer>(model, strategy, options, comm), message_memory(comm, options.overlap)};
  const bool copies = run.transport == Transport::copies;
  Processor processor = copies ? lazy_processor(comm, device) : staged_processor(comm, device);
  const MessageMemory messages = message_memory(*processor.between, options.overlap);
  return {std::make_unique<Trainer>(model, strategy, options, comm, std::move(processor)), messages,
          BesideTensors{
              .shared = copies && comm.size() > 1 ? 2 * lazy_room : 0, .workspace = lazy_scratch_bytes, .data = false}};
}

/// Runs on one rank of `comm`. Collective: every rank of `comm` calls it.
RankMemory run_rank(const Run& run, Index limit, Communicator& comm, LazyDevice& device) {
  LoadedData training = run.data(run.samples), test = run.data(run.test_samples);
  TrainerOptions options = run.options;
  options.memory_limit = limit;
  RankMemory memory;
  try {
    const Made made = make_trainer(run, options, comm, device);
    Trainer& trainer = *made.trainer;
    if (run.prepares) trainer.prepare(test);
    const std::string file =
        (std::filesystem::temp_directory_path() / fmt::format("partita_memory_test_{}.h5", getpid())).string();
    const auto after_step = [&](Index, Index, Index, const StepResult&) {
      if (run.saves && run.often) trainer.save(file);
    };
    while (!trainer.finished(training)) trainer.train_epoch(training, after_step);
    if (run.saves) trainer.save(file);
    if (run.saves) trainer.load(file, true);
    if (run.saves && comm.rank() == 0) std::filesystem::remove(file);
    trainer.evaluate(test, {});
    memory.held = trainer.peak_memory();
    memory.predicted = trainer.predicted_memory();
    const RunMemory whole(
        options.batch, true, options.may_skip(),
        [&](Index batch, bool trains) -> const Plan& { return TrainerParts::executor(trainer, batch, trains).plan(); },
        made.messages);
    const Saves saves = !run.saves ? Saves::never : run.often ? Saves::anywhere : Saves::between_epochs;
    memory.forecast = whole.peak(std::array{DataPass{&training, true}, DataPass{&test, false}}, made.beside,
                                 comm.rank(), saves, run.saves);
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("memory limit"), std::string::npos) << error.what();
    memory.refused = true;
  }
  return memory;
}

std::vector<RankMemory> run_ranks(const Run& run, Index limit) {
  std::vector<RankMemory> ranks(static_cast<std::size_t>(run.drawn.strategy.ranks()));
  LazyDevice device(static_cast<unsigned>(run.samples));
  run_threads(run.drawn.strategy.ranks(), [&](Communicator& threads) {
    const auto comm = run.transport == Transport::one_node ? one_node(borrow(threads)) : borrow(threads);
    ranks[comm->rank()] = run_rank(run, limit, *comm, device);
  });
  device.check();
  return ranks;
}

std::string print(const MemoryPeak& peak) {
  std::string text = fmt::format("{} in all:", peak.total);
  for (std::size_t i = 0; i < memory_classes; ++i)
    text += fmt::format(" {} {}", name(static_cast<MemoryClass>(i)), peak.each.bytes[i]);
  return text;
}

/// What the cases have covered.
std::map<std::string, int> covered;

void check_case(std::uint64_t seed) {
  const Run run(seed);
  SCOPED_TRACE(fmt::format("replay with PARTITA_SEED={}\n{}", seed, run.print()));
  Index most = 0;
  const auto ranks = run_ranks(run, 0);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    EXPECT_EQ(print(ranks[r].predicted), print(ranks[r].held)) << "on rank " << r;
    EXPECT_GE(ranks[r].forecast.total, ranks[r].held.total) << "on rank " << r;
    if (run.prepares) covered["forecast"] += ranks[r].forecast == ranks[r].held ? 1 : 0;
    most = std::max(most, ranks[r].held.total);
  }
  const Strategy& strategy = run.drawn.strategy;
  ++covered[std::string(name(strategy.schedule()))];
  if (run.samples % run.options.batch < std::min<Index>(strategy.microbatches(), run.options.batch) &&
      run.samples % run.options.batch > 0 && strategy.optimizer_state() == Strategy::OptimizerState::sharded)
    ++covered[strategy.groups().size() > 1 ? "few samples on stages" : "few samples"];
  if (run.saves) return;  // who saves beyond the limit must find it out before training, from the forecast
  // So must who computes on a device, for the trainer's first check does not know what the device holds beside tensors.
  if (run.transport == Transport::copies || run.transport == Transport::staged) return;
  const auto limit = static_cast<Index>(run.limit * static_cast<double>(most));
  for (const auto& rank : run_ranks(run, limit)) {
    const bool whole = run.samples >= run.options.batch;  // else a whole batch is checked, but never run
    if (limit < most || whole) {
      EXPECT_EQ(rank.refused, limit < most) << "a limit of " << limit << " of " << most;
    }
    EXPECT_LE(rank.held.total, limit);
    ++covered[rank.refused ? "refused" : "within the limit"];
  }
}

TEST(Memory, OfARunIsPredictedToTheByte) {
  if (const auto seed = number_from_environment("PARTITA_SEED", 0); seed != 0) return check_case(seed);
  const std::uint64_t count = number_from_environment("PARTITA_CASES", lengthy() ? 2000 : cases(200));
  const std::uint64_t first = number_from_environment("PARTITA_FROM", 1);
  for (std::uint64_t seed = first; seed <= count && !HasFailure(); ++seed) check_case(seed);
  // v-min, kinds with two groups per stage, and a ring in bf16, which few cases draw.
  for (const std::uint64_t seed : {30, 205, 233, 409, 1244})
    if (seed > count && !HasFailure()) check_case(seed);
  if (first > 1) return;
  std::vector<std::string> all{"few samples", "few samples on stages", "refused", "within the limit", "forecast"};
  all.insert(all.end(), kinds.begin(), kinds.end());
  for (const auto& what : all) EXPECT_GE(covered[what], 1) << what << " was not covered";
}

// Released memory is used again for buffers of the same size alone, so the allocator takes more than the peak.
TEST(Memory, WhatTheAllocatorTakesIsPredicted) {
  struct Case {
    std::string model;
    ModelSize size;
    Index batch;
  };
  std::vector<Strategy> strategies(4);
  strategies[1] = Strategy("data=2").layer("*", {.output = "N@data"});
  strategies[2] = Strategy("y=2").layer("*", {.output = "H@y"});
  strategies[3] = Strategy("data=2").layer("*", {.output = "N@data"}).schedule(ScheduleKind::gpipe, 2);
  double most = 0;
  for (const Case& c :
       {Case{"googlenet", {.extent = 67, .classes = 5, .width = 0.2}, 4},
        Case{"resnet18", {.extent = 35, .width = 0.3}, 4}, Case{"vgg16", {.extent = 37, .width = 0.2}, 4},
        Case{"unet3d", {.extent = 16, .width = 0.2}, 4}})
    for (const Strategy& strategy : strategies) {
      SCOPED_TRACE(c.model + " " + strategy.print());
      run_threads(strategy.ranks(), [&](Communicator& comm) {
        TrainerOptions o;
        o.batch = c.batch;
        o.backend = "reference";
        Trainer trainer(builtin_model(c.model, c.size), strategy, o, comm);
        const LocalBatch batch = trainer.make_batch(c.batch);
        for (int step = 0; step < 3; ++step) trainer.step(batch);
        const auto predicted = static_cast<double>(taken_memory(
            trainer.plan(), comm.rank(), state_memory(trainer.plan(), comm.rank()), message_memory(comm, o.overlap)));
        const auto taken = static_cast<double>(trainer.allocator()->peak_taken());
        const auto peak = static_cast<double>(trainer.peak_memory().total);
        // With halos the prediction is up to 4 % too high, though the peaks are exact.
        EXPECT_GE(predicted, 0.99 * taken);
        EXPECT_LE(predicted, (strategy.grid().print() == "y=2" ? 1.05 : 1.01) * taken);
        if (comm.rank() == 0) most = std::max(most, taken / peak);
      });
    }
  EXPECT_GT(most, 1.1) << "too little is kept";
}

/// A layer of the user's own that computes its borders in copies, once its halo has come.
class WithBorders final : public DiffusionRule<CustomLayer> {
 public:
  explicit WithBorders(bool dy_halo) : DiffusionRule({.x = true, .dy = true, .dx = true}, dy_halo) {}
  bool runs_on_devices() const override { return true; }
  Index held_ahead(const OperatorLayouts& at, int rank) const override {
    const Box y = at.y.owned(rank);
    const Box inside = interior_of(windows(at.y.shape()), at.x[0].owned(rank), at.x_halo->needed(rank), y);
    Index most = 0;
    if (!inside.empty())
      for (const Box& border : subtract(y, inside)) most = std::max(most, border.volume());
    return most;
  }
  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    save(call, {with_halo(call, windows(call.layer->shape), x[0], y, [&](const Tensor& from, const Box& part) {
           const bool border = from.data() != x[0].data() && !(part == y.box());
           const Tensor copy = border ? extract(from, part, MemoryClass::workspace, call.rank.stream) : from;
           copy_box(copy, y, part, call.rank.stream);
         })});
  }
  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    if (has_dy_halo()) return copy_box(dy_with_halo(call), dx[0], dx[0].box(), call.rank.stream);
    return_halo(call, windows(call.layer->shape), dy, dx[0],
                [&](const Box& part, const Tensor& to) { add_box(dy, to, part, call.rank.stream); });
  }
};

/// Adds a layer of this kind, in which most outputs of a rank with ten rows or more read no halo.
Value add_overlapping(Model& m, const std::string& kind, const Value& t, std::mt19937_64& random) {
  const auto between = [&](Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random); };
  const Index kernel = between(2, 3), stride = between(1, 2), dilation = between(1, 2), padding = between(0, 1);
  if (kind == "conv")
    return m.conv("big", t,
                  {.filters = between(1, 4),
                   .kernel = {kernel, 2},
                   .stride = {stride, 1},
                   .padding = {padding, 1},
                   .dilation = {dilation, 1}});
  if (kind == "conv_transpose")
    return m.conv_transpose("big", t, {.filters = between(1, 4), .kernel = {kernel, 2}, .stride = {stride, 1}});
  const Pool pool{
      .window = {kernel, 2}, .stride = PerDim{stride, 1}, .padding = {padding, 1}, .dilation = {dilation, 1}};
  if (kind == "max_pool") return m.max_pool("big", t, pool);
  if (kind == "average_pool") return m.average_pool("big", t, pool);
  return m.layer("big", std::make_shared<WithBorders>(between(0, 1) == 0), {t});
}

/// A run of a model whose largest tensors belong to a layer of this kind.
Run overlapping_run(std::uint64_t seed, const std::string& kind) {
  std::mt19937_64 random(seed);
  const auto between = [&](Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random); };
  Run run(seed);
  Model m(kind);
  auto t = m.input("in", {.channels = 1, .spatial = {between(31, 47), between(2, 4)}});
  t = m.conv("before", t, {.filters = between(1, 4), .kernel = 1});
  t = add_overlapping(m, kind, t, random);
  m.mean_squared_error("loss", m.linear("fc", m.global_average_pool("mean", t), {.features = 2}));
  run.drawn.model = m;
  run.drawn.strategy = Strategy("a=2 y=2");
  run.drawn.strategy.layer("*", {.output = between(0, 1) == 0 ? "N@a H@y" : "H@y"});
  run.drawn.batch = run.options.batch = between(2, 5);
  run.samples = run.options.batch + between(0, 1);
  run.options.overlap = true;
  run.saves = false;
  constexpr std::array asynchronous{Transport::threads, Transport::copies, Transport::staged};
  run.transport = asynchronous[seed % asynchronous.size()];
  return run;
}

TEST(Memory, OfLayersThatComputeAheadOfTheirHalosIsPredictedToTheByte) {
  for (std::uint64_t seed = 1; seed <= (lengthy() ? 300 : cases(15)) && !HasFailure(); ++seed)
    for (const auto* kind : {"conv", "conv_transpose", "max_pool", "average_pool", "own layer"}) {
      const auto run = overlapping_run(seed, kind);
      SCOPED_TRACE(fmt::format("seed {}\n{}", seed, run.print()));
      for (const auto& rank : run_ranks(run, 0)) {
        EXPECT_EQ(print(rank.predicted), print(rank.held));
        EXPECT_GE(rank.forecast.total, rank.held.total);
      }
    }
}

}  // namespace
}  // namespace partita::test::memory_test
