// The traffic of small plans, with numbers worked out by hand.
#include "partita/strategies/plan/traffic.hpp"

#include "test/strategies/cost/priced.hpp"

#include <gtest/gtest.h>

namespace partita::test::traffic_test {

namespace {

/// Returns role, verb and messages/bytes of each item, e.g. "halo x exchange 1/64".
std::string print(const std::vector<PlannedTraffic>& items) {
  std::string text;
  for (const auto& item : items)
    text += fmt::format("{}{} {} {}/{}", text.empty() ? "" : ", ", item.role, name(item.verb), item.traffic.messages,
                        item.traffic.bytes);
  return text;
}

std::string ops(const std::vector<PlannedTraffic>& items) {
  std::string text;
  for (const auto& item : items)
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", name(item.op.kind), item.op.recompute ? " again" : "");
  return text;
}

constexpr int a = 1, b = 2, loss = 3;  // the layers of two_convolutions()

Strategy two_groups(const std::string& kind, int microbatches) {
  Strategy strategy;
  return strategy.group({"in", "a"}).group({"b", "loss"}).schedule(kind, microbatches);
}

}  // namespace

// Images of 8x8 in rows: a row of a's input has 8 * 2 floats, a row of its output 8 * 4. In a bucket each weight takes
// a multiple of 32 elements: 72, 4, 144 and 4 become 96 + 32 + 160 + 32 = 320.
TEST(Traffic, RowsOnTwoRanks) {
  const Plan plan = bound(two_convolutions(), all_as("y=2", "H@y"), 3);
  EXPECT_EQ(print(layer_traffic(plan, a, 0)), "halo x exchange 1/192, dw all_reduce 1/1280");    // 3 * 16 * 4
  EXPECT_EQ(print(layer_traffic(plan, b, 1)), "halo x exchange 1/384, halo dy exchange 1/384");  // 3 * 32 * 4
  EXPECT_EQ(ops(layer_traffic(plan, a, 0)), "forward, sum_gradients");
  EXPECT_EQ(ops(layer_traffic(plan, b, 0)), "forward, start_backward");
  EXPECT_EQ(print(microbatch_traffic(plan, a, 0)), "halo x exchange 1/192");
  EXPECT_EQ(print(step_traffic(plan, a, 0)), "dw all_reduce 1/1280");
  EXPECT_EQ(print(step_traffic(plan, b, 0)), "");
}

TEST(Traffic, RecomputationSendsItsHalosAgain) {
  Strategy strategy = all_as("y=2", "H@y");
  strategy.layer("a", {.recompute = true});
  const Plan plan = bound(two_convolutions(), strategy, 3);
  EXPECT_EQ(print(layer_traffic(plan, a, 0)), "halo x exchange 1/192, halo x exchange 1/192, dw all_reduce 1/1280");
  EXPECT_EQ(ops(layer_traffic(plan, a, 0)), "forward, forward again, sum_gradients");
  EXPECT_EQ(layer_traffic(plan, a, 0)[1].pass, Pass::backward_data);
}

// The list of the step decides: a layer without a gradient, whose reader is not recomputed, has no backward in which it
// could run again.
TEST(Traffic, RecomputationThatNeverHappensSendsNothing) {
  Model model("first");
  auto t = model.input("in", {.channels = 2, .spatial = {8, 8}});
  t = model.max_pool("pool", t, {.window = 3, .stride = 1, .padding = 1});
  model.mean_squared_error("loss", model.conv("conv", t, {.filters = 4, .kernel = 3, .padding = 1}));
  Strategy strategy = all_as("y=2", "H@y");
  strategy.layer("pool", {.recompute = true});
  EXPECT_EQ(print(layer_traffic(bound(model, strategy, 3), 1, 0)), "halo x exchange 1/192");
}

// An output of a for one sample has 64 * 4 floats: 1024 bytes. Six samples are microbatches of 2, 2, 1 and 1.
TEST(Traffic, TwoStagesSendEachMicrobatch) {
  const Plan plan = bound(two_convolutions(), two_groups("gpipe", 4), 6);
  EXPECT_EQ(print(layer_traffic(plan, a, 0)), "y to stage 1 exchange 2/4096, y to stage 1 exchange 2/2048");
  EXPECT_EQ(print(layer_traffic(plan, a, 1)), "dy from stage 1 exchange 2/4096, dy from stage 1 exchange 2/2048");
  EXPECT_EQ(print(layer_traffic(plan, b, 0)), "");
  for (const int rank : {0, 1})  // loss and accuracy, two doubles
    EXPECT_EQ(print(layer_traffic(plan, loss, rank)), "loss to all stages all_reduce 1/16");
  EXPECT_EQ(print(microbatch_traffic(plan, a, 0)), "y to stage 1 exchange 1/2048");
  EXPECT_EQ(print(microbatch_traffic(plan, a, 0, true)), "y to stage 1 exchange 1/1024");
  EXPECT_EQ(rank_traffic(plan, 0).counted, (Traffic{5, 6144 + 16}));
  EXPECT_EQ(rank_traffic(plan, 1).counted, (Traffic{5, 6144 + 16}));
}

// 320 elements of 4 bytes. An all-reduce among four ranks sends each byte there and back, but for the rank's own
// quarter. A sharded optimizer sums in the first half of that, and gathers weights in the second. The loss has 16
// bytes.
TEST(Traffic, OfAShardedOptimizerLeavesARankLikeThatOfASum) {
  Strategy strategy = all_as("data=4", "N@data");
  EXPECT_DOUBLE_EQ(rank_traffic(bound(two_convolutions(), strategy, 4), 0).sent, 2 * 3. / 4 * (1280 + 16));
  strategy.optimizer_state(Strategy::OptimizerState::sharded);
  const RankTraffic sharded = rank_traffic(bound(two_convolutions(), strategy, 4), 0);
  EXPECT_EQ(sharded.counted, (Traffic{3, 2 * 1280 + 16}));
  EXPECT_DOUBLE_EQ(sharded.sent, 2 * 3. / 4 * (1280 + 16));
}

TEST(Traffic, SplitBackwardSendsTheSame) {
  for (const int rank : {0, 1}) {
    const Plan whole = bound(two_convolutions(), two_groups("1f1b", 4), 6);
    const Plan split = bound(two_convolutions(), two_groups("zb-h1", 4), 6);
    EXPECT_EQ(rank_traffic(whole, rank).counted, rank_traffic(split, rank).counted);
    EXPECT_EQ(rank_traffic(whole, rank).sent, rank_traffic(split, rank).sent);
  }
}

TEST(Traffic, EvaluationSendsNoGradients) {
  const Plan plan = bound(two_convolutions(), two_groups("gpipe", 2), 4, false);
  EXPECT_EQ(rank_traffic(plan, 0).counted, (Traffic{3, 4096 + 16}));
  EXPECT_EQ(rank_traffic(plan, 1).counted, (Traffic{1, 16}));
}

// Each rank runs both groups, one in each replica, and adds the gradients of both: 128 and 192 elements.
TEST(Traffic, ReplicasAddTheirGradients) {
  const Plan plan = bound(two_convolutions(), two_groups("chimera", 2), 4);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(print(step_traffic(plan, a, rank)), "dw of both replicas all_reduce 1/512");
    EXPECT_EQ(print(step_traffic(plan, b, rank)), "dw of both replicas all_reduce 1/768");
    EXPECT_EQ(rank_traffic(plan, rank).counted, (Traffic{1 + 1 + 2 + 1, 2048 + 2048 + 512 + 768 + 16}))
        << "y, dy, dw, loss";
  }
  EXPECT_EQ(layer_traffic(plan, a, 0).back().op.kind, StepOp::Kind::add_replicas);
}

// Lamb sums two squares for each of four weights. A sharded optimizer reduces and gathers all 320 elements.
TEST(Traffic, ShardedUpdateWithNorms) {
  Strategy strategy = all_as("data=2", "N@data");
  strategy.optimizer_state(Strategy::OptimizerState::sharded);
  const Plan plan = bind(two_convolutions(), strategy,
                         {.batch = 4, .dtype = DType::f32, .training = true, .optimizer = {.method = Method::lamb}});
  EXPECT_EQ(print(step_traffic(plan, a, 0)), "dw reduce_scatter 1/1280, norms all_reduce 1/64, w all_gather 1/1280");
  EXPECT_EQ(ops(step_traffic(plan, a, 0)), "sum_gradients, update, update");
  EXPECT_EQ(print(layer_traffic(plan, a, 1)), print(step_traffic(plan, a, 1)));
}

// Tables that lie on different ranks send the rows of all samples in one all-to-all, and get the gradients in another.
TEST(Traffic, EachGroupOfWholeTablesIsTwoAllToAlls) {
  Model m("tables");
  const auto rows_of = [&](const std::string& group, Index tables) {
    const Value in = m.input("in_" + group, {.channels = 2, .length = tables, .tokens = true});
    return m.tables("tables_" + group, in, {.rows = 5, .features = 4});
  };
  const Value dense = m.linear("bottom", m.input("dense", {.channels = 3}), {.features = 4});
  const Value first = m.interaction("first", rows_of("a", 8), dense);
  const Value t = m.concatenate("all", {first, m.interaction("second", rows_of("b", 12), dense)});
  m.softmax_cross_entropy("loss", m.linear("scores", t, {.features = 2}));
  Strategy s("r=4");
  s.layer("*", {.output = "N@r"});
  for (const char* each : {"in_a", "in_b", "tables_*"}) s.layer(each, {.output = "L@r"});
  const Plan plan = bind(m, s, {.batch = 8, .dtype = DType::f32, .optimizer = {}});
  std::map<std::string, Traffic> sent;
  for (int layer = 0; layer < static_cast<int>(plan.layers.size()); ++layer)
    for (const auto& item : layer_traffic(plan, layer, 0))
      if (item.role != "dw" && item.role != "loss")
        sent[fmt::format("{} {}", plan.layers[layer].name, item.role)] += item.traffic;
  // To each of the three others: the vectors of a quarter of the tables for a quarter of the samples.
  const auto bytes = [](Index tables) { return 3 * (tables / 4) * 4 * (8 / 4) * 4; };
  const std::map<std::string, Traffic> expected{{"first x", {3, bytes(8)}},
                                                {"first dx", {3, bytes(8)}},
                                                {"second x", {3, bytes(12)}},
                                                {"second dx", {3, bytes(12)}}};
  EXPECT_EQ(sent, expected);
  EXPECT_EQ(plan.layer("tables_a")->at.w[0].print(), "V C L@r");
  EXPECT_EQ(plan.layer("tables_a")->at.dw[0].partial(), 0) << "no gradient of a table is summed over ranks";
}

}  // namespace partita::test::traffic_test
