// In bf16 and f16, gradients of many microbatches are added exactly enough, on every kind of layer with weights.
#include "partita/train/checkpoint/checkpoint.hpp"
#include "partita/train/trainer/trainer.hpp"
#include "src/comm/threads/threads.hpp"
#include "test/support/lazy_backend.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace partita::test::microbatch_types_test {
namespace {

/// Equal samples of pixels between -1 and 1, with one value as target or with the label 1.
class Equal final : public Dataset {
 public:
  Equal(Shape sample, Index classes) : sample_(sample), classes_(classes) {}
  Shape sample() const override { return sample_; }
  Shape target() const override { return classes_ == 0 ? Shape{{'C', 1}} : Shape(); }
  Index size() const override { return 1 << 20; }
  Index classes() const override { return classes_; }
  void hold(std::span<const Index>, const Box&) override {}
  void read(Index, const Box& box, std::span<double> out) const override {
    std::size_t next = 0;
    for (Index c = box[0].lo; c < box[0].hi; ++c)
      for (Index h = box[1].lo; h < box[1].hi; ++h)
        for (Index w = box[2].lo; w < box[2].hi; ++w)
          out[next++] = static_cast<double>((c * 5 + h * 3 + w * 7) % 17 - 8) / 8;
  }
  void read_target(Index, const Box&, std::span<double> out) const override { out[0] = 1e4; }
  std::int32_t label(Index) const override { return 1; }

 private:
  Shape sample_;
  Index classes_;
};

using Weights = std::map<std::string, std::vector<double>>;

/// Trains one step on `samples` equal samples. Returns the weights of all ranks before and after it.
struct Trained {
  Weights before, after;
  Trained(const Model& model, const Strategy& strategy, DType dtype, Index samples, LazyDevice* device = nullptr) {
    std::mutex mutex;
    run_threads(strategy.ranks(), [&](Communicator& comm) {
      TrainerOptions o;
      o.batch = samples;
      o.dtype = dtype;
      o.backend = "reference";
      o.optimizer = {.rate = 1, .momentum = 0};
      const bool values = model.layers().back().op->kind() == "mean_absolute_error";
      Equal data({{'C', 2}, {'H', values ? 1 : 4}, {'W', values ? 1 : 3}}, values ? 0 : 3);
      Trainer trainer(
          model, strategy, o, comm,
          device != nullptr ? lazy_processor(comm, *device) : cpu_processor(comm, make_backend("reference", dtype, 1)));
      std::vector<Index> order(static_cast<std::size_t>(samples));
      std::iota(order.begin(), order.end(), Index{0});
      const auto keep = [&](Weights& to) {
        const std::scoped_lock lock(mutex);
        for (const auto& [name, tensor] : trainer.weights())
          to[fmt::format("{} on rank {}", name, comm.rank())] = partita::read(tensor.local, trainer.stream());
      };
      keep(before);
      trainer.step(data, order);
      keep(after);
      EXPECT_EQ(trainer.peak_memory(), trainer.predicted_memory()) << "on rank " << comm.rank();
      EXPECT_TRUE(trainer.predicted() == trainer.measured()) << "on rank " << comm.rank();
    });
  }
};

TEST(MicrobatchTypes, AConstantGradientOf2048MicrobatchesIsRight) {
  // y stays below the target, so dL/dy = -1/batch for every sample. The step is the mean of x = (-1, -0.375) and of 1.
  Model m("line");
  m.mean_absolute_error("loss", m.linear("fc", m.input("x", {.channels = 2, .spatial = {1, 1}}), {.features = 1}));
  const std::map<std::string, std::vector<double>> steps{{"fc/weight on rank 0", {-1, -0.375}},
                                                         {"fc/bias on rank 0", {1}}};
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32})
    for (const int microbatches : {64, 512, 2048, 1000}) {
      const Trained run(m, Strategy().schedule(ScheduleKind::one_f_one_b, microbatches), dtype, microbatches);
      for (const auto& [name, step] : steps)
        for (std::size_t i = 0; i < step.size(); ++i)
          EXPECT_NEAR(run.after.at(name)[i] - run.before.at(name)[i], step[i], 0.01 * std::abs(step[i]))
              << name << " in " << partita::name(dtype) << ", " << microbatches << " microbatches";
    }
}

// The gradients of a microbatch take memory that others had before.
TEST(MicrobatchTypes, PlacesOfATableThatNoSampleHasStay) {
  constexpr Index channels = 2, used = 12, places = 40;
  Model m("longer");
  Value t = m.places("places", m.input("in", {.channels = channels, .spatial = {4, 3}}));
  t = m.positions("positions", t, {.places = places, .deviation = 1});
  m.softmax_cross_entropy("loss", m.linear("fc", t, {.features = 3}));
  LazyDevice device(1);
  for (const DType dtype : {DType::f64, DType::bf16})
    for (LazyDevice* where : {static_cast<LazyDevice*>(nullptr), &device}) {
      const Trained run(m, Strategy().schedule(ScheduleKind::one_f_one_b, 3), dtype, 6, where);
      const auto &before = run.before.at("positions/table on rank 0"),
                 &after = run.after.at("positions/table on rank 0");
      for (Index i = 0; i < places * channels; ++i) EXPECT_EQ(before[i] == after[i], i >= used * channels) << i;
    }
}

/// Every kind of layer with weights.
Model net() {
  Model m("net");
  auto t = m.input("in", {.channels = 2, .spatial = {4, 3}});
  t = m.conv("conv", t, {.filters = 4, .kernel = 3, .padding = 1});
  t = m.batch_norm("batch_norm", t);
  t = m.relu("relu", t);
  t = m.conv_transpose("up", t, {.filters = 4, .kernel = 2});
  t = m.group_norm("group_norm", t, {.groups = 2});
  t = m.layer_norm("layer_norm", t);
  t = m.linear("fc", t, {.features = 3});
  m.softmax_cross_entropy("loss", t);
  return m;
}

std::vector<Strategy> strategies() {
  std::vector<Strategy> all(5);
  all[1] = Strategy("y=2").layer("*", {.output = "H@y"});
  all[2] = Strategy("y=3").layer("*", {.output = "H@y"}).optimizer_state(Strategy::OptimizerState::sharded);
  all[3] = Strategy().group({"in", "relu"}).group({"up", "loss"});
  all[4] = Strategy("c=2").layer("*", {.output = "C@c"}).group({"in", "relu"}).group({"up", "loss"});
  return all;
}

/// Microbatches of one sample each, all equal, have equal gradients. Their parts of the step's gradient are these,
/// divided by a power of two, so that an exact sum gives the bits of a step on a single sample.
void check_sums(DType dtype, int microbatches, LazyDevice* device) {
  for (const Strategy& strategy : strategies())
    for (const ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::zb_h1}) {
      SCOPED_TRACE(fmt::format("{}\n{} {}", strategy.print(), name(dtype), name(kind)));
      Strategy one = strategy, many = strategy;
      const Trained single(net(), one.schedule(kind, 1), dtype, 1, device);
      const Trained sum(net(), many.schedule(kind, microbatches), dtype, microbatches, device);
      EXPECT_EQ(sum.before, single.before);
      for (const auto& [name, w] : single.after) {
        if (name.find("running_") != std::string::npos) continue;  // means over microbatches, not gradients
        EXPECT_EQ(sum.after.at(name), w) << name;
        EXPECT_TRUE(w.empty() || w != single.before.at(name)) << name << " was not trained";
      }
    }
}

TEST(MicrobatchTypes, AddPartsOfAllLayersExactly) {
  check_sums(DType::bf16, 256, nullptr);
  check_sums(DType::f16, 32, nullptr);
}

TEST(MicrobatchTypes, AddPartsExactlyOnDevices) {
  LazyDevice device(3);
  check_sums(DType::bf16, 64, &device);
  device.check();
}

}  // namespace
}  // namespace partita::test::microbatch_types_test
