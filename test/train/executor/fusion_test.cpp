// An activation that the layer before it computes gives the same training as one that runs alone.
#include "partita/base/philox.hpp"
#include "partita/tensor/dist_tensor.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/train/trainer/trainer_parts.hpp"
#include "test/support/lazy_backend.hpp"

#include <gtest/gtest.h>

#include <map>

namespace partita::test::fusion_test {

namespace {

constexpr Index samples = 5;

/// Each kind of layer that computes an activation, before it. If `apart`, a layer that changes nothing keeps them from
/// being one. Extents that no grid here divides.
Model net(bool apart) {
  Model m("net");
  const auto then = [&](const Value& t, const std::string& name) {
    return apart ? m.average_pool(name, t, {.window = 1}) : t;
  };
  const auto in = m.input("in", {.channels = 2, .spatial = {7, 5}});
  auto t = m.tanh("tanh", then(m.conv("conv1", in, {.filters = 3, .kernel = 3, .padding = 1}), "one1"));
  t = m.relu("relu1", then(m.batch_norm("norm", t), "one2"));
  const auto side = m.conv("conv2", t, {.filters = 3, .kernel = 3, .padding = 1, .bias = false});
  t = m.relu("relu2", then(m.add("add", t, side), "one3"));
  t = m.sigmoid("sigmoid", then(m.conv("conv3", t, {.filters = 4, .kernel = 1}), "one4"));
  m.softmax_cross_entropy("loss", m.linear("fc", t, {.features = 3}));
  return m;
}

std::vector<Strategy> strategies() {
  std::vector<Strategy> all(7);
  all[1] = Strategy("data=2").layer("*", {.output = "N@data"}).optimizer_state(Strategy::OptimizerState::sharded);
  all[2] = Strategy("y=3").layer("*", {.output = "H@y"});
  all[3] = Strategy("c=2").layer("*", {.output = "C@c"});
  all[4] = Strategy("data=2 x=2").layer("*", {.output = "N@data W@x"}).schedule(ScheduleKind::gpipe, 2);
  all[5] = Strategy("y=2").layer("*", {.output = "H@y", .recompute = true});
  all[6] = Strategy("data=4 y=2").layer("*", {.output = "N@data H@y"});  // empty blocks
  return all;
}

struct Trained {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> weights;
  int fused = 0;  // activations that the layer before may compute; after a norm and a sum, nobody else does
};

/// Trains three steps on each rank, on a device or on the CPU. Returns what rank 0 has.
Trained train(const Strategy& strategy, bool apart, bool on_device) {
  Trained trained;
  LazyDevice device(6);
  run_threads(strategy.ranks(), [&](Communicator& comm) {
    TrainerOptions o;
    o.batch = samples;
    o.dtype = DType::f64;
    o.optimizer.rate = 0.1;
    o.backend = "reference";
    Trainer trainer(net(apart), strategy, o, comm,
                    on_device ? lazy_processor(comm, device) : cpu_processor(comm, make_reference_backend()));
    const LocalBatch batch = trainer.make_batch(samples);
    for (const SampleBlock& block : batch.images)
      fill(block.tensor, block.shape, [&](Index i) { return Random(7, 1).normal(70 * block.first_sample + i); });
    batch.fill_targets([](Index sample, const Box&, std::span<double> values) {
      for (double& value : values) value = static_cast<double>(sample % 3);
    });
    std::vector<double> losses;
    for (int step = 0; step < 3; ++step) losses.push_back(trainer.step(batch).loss);
    if (comm.rank() != 0) return;
    trained.losses = losses;
    for (const auto& [name, tensor] : trainer.weights()) trained.weights[name] = read(tensor.local, trainer.stream());
    for (const LayerPlan& layer : trainer.plan().layers) trained.fused += layer.fusible ? 1 : 0;
  });
  device.check();
  return trained;
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-9) << what << " " << i;
}

}  // namespace

TEST(Fusion, TrainsAsActivationsThatRunAlone) {
  for (const Strategy& strategy : strategies())
    for (const bool on_device : {false, true}) {
      SCOPED_TRACE(strategy.print() + (on_device ? " on a device" : ""));
      const Trained fused = train(strategy, false, on_device), alone = train(strategy, true, on_device);
      EXPECT_GE(fused.fused, 2);
      EXPECT_EQ(alone.fused, 0);
      expect_near(fused.losses, alone.losses, "loss");
      ASSERT_EQ(fused.weights.size(), alone.weights.size());
      for (const auto& [name, values] : fused.weights) expect_near(values, alone.weights.at(name), name);
    }
}

}  // namespace partita::test::fusion_test
