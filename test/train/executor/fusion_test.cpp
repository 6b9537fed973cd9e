// What is computed at once, an activation with the layer before it, a dropout with the addition after it, the gradient
// of a normalization with the sum of gradients, gives the same training as what runs alone.
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

/// Two blocks of a transformer without attention, one normalized before its layers, the other behind them.
Model blocks(bool apart) {
  Model m("blocks");
  const auto then = [&](const Value& t, const std::string& name) {
    return apart ? m.dropout(name, t, {.rate = 0}) : t;
  };
  const auto linear = [&](const std::string& name, const Value& t) {
    return m.linear(name, t, {.features = 6, .per_place = true});
  };
  auto t = linear("first", m.input("in", {.channels = 3, .length = 11}));
  auto side = linear("up1", m.layer_norm("norm1", then(t, "one1"), {.per_place = true}));
  t = m.add("add1", t, then(m.dropout("drop1", linear("down1", side), {.rate = 0.3}), "one2"));
  side = linear("up2", m.rms_norm("norm2", then(t, "one3")));
  t = m.add("add2", then(m.dropout("drop2", linear("down2", side), {.rate = 0.2}), "one4"), t);
  side = m.dropout("drop3", linear("up3", t), {.rate = 0.4});
  t = m.layer_norm("norm3", m.add("add3", t, then(side, "one5")), {.per_place = true});
  m.softmax_cross_entropy("loss", linear("scores", t));
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

std::vector<Strategy> strategies_of_blocks() {
  std::vector<Strategy> all(12);
  all[1] = Strategy("data=2").layer("*", {.output = "N@data"}).optimizer_state(Strategy::OptimizerState::sharded);
  all[2] = Strategy("y=3").layer("*", {.output = "L@y"});
  all[3] = Strategy("c=2").layer("*", {.output = "C@c"}).layer("norm*", {.output = "L@c"});
  all[4] = Strategy("data=2 y=2").layer("*", {.output = "N@data L@y"}).schedule(ScheduleKind::gpipe, 2);
  all[5] = Strategy("y=2").layer("*", {.output = "L@y", .recompute = true});
  all[6] = Strategy("data=4 y=2").layer("*", {.output = "N@data L@y"});  // empty blocks
  all[7] = Strategy().group({"in", "norm1"}).group({"up1", "loss"}).schedule(ScheduleKind::one_f_one_b, 3);
  all[8] = Strategy().group({"in", "up2"}).group({"down2", "loss"}).schedule("zb-h1", 4);
  all[9] = all[8];
  all[9].schedule("chimera", 4);
  for (const int i : {10, 11}) {
    for (const auto& [first, last] : {std::pair{"in", "norm1"}, {"up1", "up2"}, {"down2", "add2"}, {"up3", "loss"}})
      all[i].group({first, last});
    all[i].schedule(i == 10 ? "interleaved" : "zb-v", 4);
  }
  return all;
}

struct Trained {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> weights;
  int fused = 0;  // activations that the layer before may compute; after a norm and a sum, nobody else does
  int dropped = 0, added = 0;  // dropouts that additions compute, gradients that are added as they are made
};

/// Trains three steps on each rank, on a device or on the CPU. Returns what rank 0 has.
Trained train(const Model& model, const Strategy& strategy, bool on_device) {
  Trained trained;
  LazyDevice device(6);
  run_threads(strategy.ranks(), [&](Communicator& comm) {
    TrainerOptions o;
    o.batch = samples;
    o.dtype = DType::f64;
    o.optimizer.rate = 0.1;
    o.backend = "reference";
    Trainer trainer(model, strategy, o, comm,
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
    for (const LayerPlan& layer : trainer.plan().layers) {
      trained.fused += layer.fusible ? 1 : 0;
      trained.dropped += layer.computed_by_reader ? 1 : 0;
      trained.added += layer.adds_gradient ? 1 : 0;
    }
  });
  device.check();
  return trained;
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-9) << what << " " << i;
}

void expect_same(const Trained& fused, const Trained& alone) {
  expect_near(fused.losses, alone.losses, "loss");
  ASSERT_EQ(fused.weights.size(), alone.weights.size());
  for (const auto& [name, values] : fused.weights) expect_near(values, alone.weights.at(name), name);
}

}  // namespace

TEST(Fusion, TrainsAsActivationsThatRunAlone) {
  for (const Strategy& strategy : strategies())
    for (const bool on_device : {false, true}) {
      SCOPED_TRACE(strategy.print() + (on_device ? " on a device" : ""));
      const Trained fused = train(net(false), strategy, on_device), alone = train(net(true), strategy, on_device);
      EXPECT_GE(fused.fused, 2);
      EXPECT_EQ(alone.fused, 0);
      expect_same(fused, alone);
    }
}

TEST(Fusion, DropsAndAddsAsLayersThatRunAlone) {
  int dropped = 0, added = 0;
  for (const Strategy& strategy : strategies_of_blocks())
    for (const bool on_device : {false, true}) {
      SCOPED_TRACE(strategy.print() + (on_device ? " on a device" : ""));
      const Trained fused = train(blocks(false), strategy, on_device), alone = train(blocks(true), strategy, on_device);
      dropped += fused.dropped;
      added += fused.added;
      EXPECT_EQ(alone.dropped + alone.added, 0);
      expect_same(fused, alone);
    }
  EXPECT_EQ(dropped, 2 * 12 * 3);
  EXPECT_EQ(added, 2 * 11 * 2) << "where channels are cut, the normalizations are not";
}

}  // namespace partita::test::fusion_test
