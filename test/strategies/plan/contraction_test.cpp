// The three stationary algorithms of a convolution, its groups, and the products of a linear layer: layouts, costs and
// choices.
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "partita/strategies/plan/traffic.hpp"
#include "test/support/error_of.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace partita::test::contraction_test {
namespace {

/// Binds a 3x3 convolution with 32 filters of x[N=4 C=16 H=8 W=8] on a grid, with the given layouts of its input and
/// output.
OperatorLayouts conv_between(const char* grid, const char* x, const char* y, const LayerRule& more = {},
                             Index groups = 1) {
  Model m("one");
  auto t = m.input("x", {.channels = 16, .spatial = {8, 8}});
  t = m.batch_norm("before", t);  // it has weights to train: dx is needed
  t = m.conv("conv", t, {.filters = 32, .kernel = 3, .padding = 1, .groups = groups});
  m.softmax_cross_entropy("loss", m.global_average_pool("mean", t));
  Strategy strategy(grid);
  strategy.layer("before", {.output = x});
  LayerRule rule = more;
  rule.output = y;
  strategy.layer("conv", rule);
  return bind(m, strategy, {.batch = 4, .optimizer = {}}).layer("conv")->at;
}

TEST(Contraction, LayoutsOfTheThreeStationaryWays) {
  const auto x = conv_between("c=4", "C@c", "C@c", {.algorithm = "stationary-x"});
  EXPECT_EQ(x.x[0].print(), "N C@c H W");
  EXPECT_EQ(x.w[0].print(), "F C@c H W");
  EXPECT_EQ(x.y.print(), "N C H W sum@c");
  EXPECT_EQ(x.dx[0].print(), "N C@c H W");
  EXPECT_EQ(x.dw[0].print(), "F C@c H W");
  const auto y = conv_between("c=4", "C@c", "C@c", {.algorithm = "stationary-y"});
  EXPECT_EQ(y.x[0].print(), "N C H W");
  EXPECT_EQ(y.w[0].print(), "F@c C H W");
  EXPECT_EQ(y.y.print(), "N C@c H W");
  EXPECT_EQ(y.dx[0].print(), "N C H W sum@c");
  const auto w = conv_between("data=2 y=2 x=2", "N@data C@(y,x)", "N@data C@(x,y)", {.algorithm = "stationary-w"});
  EXPECT_EQ(w.x[0].print(), "N@data C@y H W");
  EXPECT_EQ(w.w[0].print(), "F@x C@y H W");
  EXPECT_EQ(w.y.print(), "N@data C@x H W sum@y");
  EXPECT_EQ(w.dw[0].print(), "F@x C@y H W sum@data") << "summed only over ranks with the same block";
}

// Words sent by one rank per step, from the table of Dryden et al. 2019 and a ring's factor (p-1)/p. x has 4*16*64
// elements and y has 4*32*64.
TEST(Contraction, AutoTakesTheFewestWordsAndSaysSo) {
  const double x = 4 * 16 * 64, y = 4 * 32 * 64, of_4 = 3.0 / 4;
  const auto both = conv_between("c=4", "C@c", "C@c");
  EXPECT_EQ(both.algorithm, Algorithm::stationary_y) << "y is larger than x";
  ASSERT_EQ(both.alternatives.size(), 2U);
  EXPECT_EQ(both.alternatives[0].words, 2 * x * of_4) << "x is gathered, dx reduce-scattered";
  EXPECT_EQ(both.alternatives[1].algorithm, Algorithm::stationary_x);
  EXPECT_EQ(both.alternatives[1].words, 2 * y * of_4) << "y is reduce-scattered, dy gathered";
  EXPECT_EQ(both.alternatives[0].flops, 2 * y * 16 * 9 / 4);
  const auto from_whole = conv_between("c=4", "", "C@c");
  EXPECT_EQ(from_whole.alternatives[0].words, 2 * x * of_4) << "dx is reduced to all ranks";
  EXPECT_EQ(from_whole.algorithm, Algorithm::stationary_y);
  const auto to_whole = conv_between("c=4", "C@c", "");
  EXPECT_EQ(to_whole.algorithm, Algorithm::stationary_x)
      << "more words than a gathered x, but a quarter of the operations";
  const auto four_by_two = conv_between("f=4 c=2", "C@(c,f)", "C@(f,c)");
  EXPECT_EQ(four_by_two.algorithm, Algorithm::stationary_w);
}

TEST(Contraction, GroupsAreNeverCut) {
  const auto whole = conv_between("c=4", "C@c", "C@c", {}, 4);
  EXPECT_EQ(whole.algorithm, Algorithm::groups);
  EXPECT_EQ(whole.alternatives[0].words, 0);
  EXPECT_EQ(whole.w[0].print(), "F@c C H W");
  EXPECT_EQ(whole.w[0].shape()['C'], 4);
  expect_error([] { conv_between("c=3", "", "C@c", {}, 4); }, {"layer 'conv'", "splits a group", "4 groups"});
  EXPECT_EQ(conv_between("c=3", "C@c", "", {}, 4).algorithm, std::nullopt) << "an input that cuts groups is gathered";
}

TEST(Contraction, WeightsAndInputSettleTheWay) {
  EXPECT_EQ(conv_between("c=4", "C@c", "C@c", {.weights = "C@c"}).algorithm, Algorithm::stationary_x);
  EXPECT_EQ(conv_between("c=4", "C@c", "C@c", {.input = "C@c"}).algorithm, Algorithm::stationary_x);
  EXPECT_EQ(conv_between("c=4", "C@c", "C@c", {.input = "C"}).algorithm, Algorithm::stationary_y);
  EXPECT_EQ(conv_between("c=4", "C@c", "C@c", {.weights = "F"}).algorithm, std::nullopt)
      << "every rank has the whole weight";
}

TEST(LinearLayers, ColumnsThenRowsTakeOneAllReduceEachWay) {
  Strategy strategy("c=4");
  strategy.layer("*", {.output = ""}).layer("fc1", {.output = "C@c"}).layer("fc3", {.output = "C@c"});
  const Plan plan = bind(mlp({.widths = {256, 256, 256, 256}}), strategy, {.batch = 8, .optimizer = {}});
  std::map<std::string, std::string> moved;
  for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i)
    for (const auto& item : layer_traffic(plan, i, 1))
      moved[plan.layers[i].name] += fmt::format("{} {}{};", item.role, name(item.verb), plan.grid().print(item.axes));
  const std::map<std::string, std::string> expected{
      {"fc2", "product y all_reduce(c);"}, {"fc3", "dx all_reduce(c);"}, {"fc4", "product y all_reduce(c);"}};
  EXPECT_EQ(moved, expected) << "the first layer has no dx";
}

// An image of one channel is on only one of the ranks that shard channels. If its samples were sharded instead, both
// ranks would have whole weights, and their gradient would have to be summed.
TEST(LinearLayers, GathersFeaturesWhereWeightsThenStayInPlace) {
  Strategy strategy("c=2");
  const Plan plan =
      bind(mlp({.widths = {1024, 1024}}), strategy.layer("*", {.output = "C@c"}), {.batch = 256, .optimizer = {}});
  const auto fc1 = static_cast<int>(
      std::find_if(plan.layers.begin(), plan.layers.end(), [](const auto& layer) { return layer.name == "fc1"; }) -
      plan.layers.begin());
  EXPECT_EQ(plan.layers[fc1]->at.w[0].print(), "F@c C H W");
  const auto traffic = layer_traffic(plan, fc1, 0);
  ASSERT_EQ(traffic.size(), 1U);
  EXPECT_EQ(traffic[0].role, "x");
  EXPECT_EQ(traffic[0].verb, Verb::all_gather);
}

// Plans of the last, smaller batch and of the second replica have the weights of the first plan as rules. Their buckets
// must be the same. Here one channel, which arrives on one rank, makes whole weights the best.
TEST(LinearLayers, WeightsThatWereChosenGiveTheSamePlanAsRules) {
  Model m;
  Value t = m.input("tokens", {.length = 5, .tokens = true});
  t = m.embedding("embedding", t, {.vocabulary = 7, .features = 1});
  t = m.linear("back", t, {.features = 1, .per_place = true});
  m.softmax_cross_entropy("loss", m.linear("scores", t, {.features = 7, .per_place = true}));
  Strategy strategy("a=2 b=4");
  strategy.layer("embedding", {.output = "N@a C@b"}).layer("back", {.output = "N@b"});
  for (const Index batch : {7, 6, 1}) {
    const Workload workload{.batch = batch, .optimizer = {}};
    const Plan plan = bind(m, strategy, workload);
    EXPECT_EQ(bind(m, pin_weight_layouts(strategy, plan), workload).buckets, plan.buckets) << batch;
  }
}

}  // namespace
}  // namespace partita::test::contraction_test
