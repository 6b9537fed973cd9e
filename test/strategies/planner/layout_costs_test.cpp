// Checks the planner's cost estimates for layouts before a strategy is bound: repeated blocks are estimated once, and
// shortened grids cost what the grids that they stand for cost.
#include "strategies/planner/layout_costs.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/traffic.hpp"
#include "strategies/cost/piece_cost.hpp"
#include "test/strategies/cost/priced.hpp"

#include <numeric>

namespace partita::test::layout_costs_test {
namespace {

Workload of_batch(Index batch) { return {.batch = batch, .dtype = DType::f32, .training = true, .optimizer = {}}; }

TEST(LayerClasses, HoldRepeatedLayersOnce) {
  const Model model = builtin_model("resnet18", {});
  const LayerClasses classes(model);
  const auto& distinct = classes.model.layers();
  EXPECT_LT(distinct.size(), model.layers().size());
  ASSERT_EQ(classes.occurrences.size(), distinct.size());
  EXPECT_EQ(std::accumulate(classes.occurrences.begin(), classes.occurrences.end(), 0.0),
            static_cast<double>(model.layers().size()));
  const auto shapes = model.shapes(1), of_classes = classes.model.shapes(1);
  ASSERT_EQ(classes.of_layer.size(), model.layers().size());
  for (std::size_t i = 0; i < model.layers().size(); ++i) {
    const auto c = static_cast<std::size_t>(classes.of_layer[i]);
    EXPECT_EQ(distinct[c].op->kind(), model.layers()[i].op->kind()) << model.layers()[i].name;
    EXPECT_EQ(distinct[c].op->describe(), model.layers()[i].op->describe()) << model.layers()[i].name;
    EXPECT_EQ(of_classes[c], shapes[i]) << model.layers()[i].name;
  }
}

// The first trained layer computes no gradient of its input.
TEST(LayerClasses, ALayerBehindAnUntrainedOneIsAnother) {
  Model m("chain");
  auto t = m.input("in", {.channels = 8, .spatial = {}});
  t = m.relu("relu1", t);
  for (const char* name : {"a", "b", "c"}) t = m.linear(name, t, {.features = 8});
  m.mean_squared_error("loss", m.relu("relu2", t));
  const LayerClasses classes(m);
  EXPECT_EQ(classes.of_layer, (std::vector<int>{0, 1, 2, 3, 3, 4, 5}));
  EXPECT_EQ(classes.occurrences, (std::vector<double>{1, 1, 1, 2, 1, 1}));
}

TEST(LayoutCosts, WhatIsReadFurtherDownCrossesEveryBoundaryBefore) {
  Model m("skip");
  const auto in = m.input("in", {.channels = 8, .spatial = {}});
  const auto a = m.linear("a", in, {.features = 8}), b = m.linear("b", a, {.features = 8});
  m.mean_squared_error("loss", m.concatenate("both", {b, a}));
  const Machine machine = round_machine();
  const KernelTimes none;
  const Workload workload = of_batch(4);
  const LayoutCosts prices({m, workload, machine, none}, "");
  ASSERT_EQ(LayerClasses(m).of_layer, (std::vector<int>{0, 1, 2, 3, 4}));
  CandidateLayoutCosts costs;
  costs.patterns = {{{{'N', {"data"}}}}, {{{'C', {"data"}}}}};
  costs.leaving = {{1, 10}, {2, 20}, {3, 30}, {4, 40}, {5, 50}};
  EXPECT_EQ(prices.boundary_seconds(costs, {0, 0, 1, 0, 0}), (std::vector<double>{0, 1, 2, 2 + 30, 4}));
  EXPECT_EQ(prices.boundary_seconds(costs, {1, 1, 0, 1, 1}), (std::vector<double>{0, 10, 20, 20 + 3, 40}));
}

/// A model with statistics and gradient sums over samples and over spatial positions; each layer is a class of its own.
Model normalized() {
  Model m("normalized");
  auto t = m.input("in", {.channels = 4, .spatial = {16, 16}});
  t = m.conv("a", t, {.filters = 8, .kernel = 3, .padding = 1});
  t = m.batch_norm("bn", t);
  t = m.conv("b", t, {.filters = 16, .kernel = 3, .padding = 1});
  m.mean_squared_error("loss", t);
  return m;
}

/// Seconds of the sums of a layer's gradients, as their share of one bucket of `bucket` bytes.
double sums_of(const LayerPlan& layer, const PieceCost& price, double bucket) {
  double seconds = 0;
  for (std::size_t w = 0; w < layer->weights.size(); ++w) {
    const AxisSet axes = layer->weights[w].trained ? layer->at.dw[w].partial() : 0;
    const Grid& grid = layer->at.w[w].grid();
    if (grid.group_size(axes) == 1) continue;
    const PlannedTraffic item{"dw",         Verb::all_reduce, axes, {1, static_cast<Index>(bucket)},
                              Pass::update, Purpose::sum};
    seconds += price.seconds(item, grid, 0) / bucket * static_cast<double>(layer->at.w[w].owned(0).volume() * 4);
  }
  return seconds;
}

/// Compares the costs of all patterns with those of plans on the whole grid.
void expect_whole(const Machine& machine, const Shares& shares) {
  const Model model = normalized();
  const KernelTimes none;
  const Workload workload = of_batch(4 * shares.data);
  LayoutCosts prices({model, workload, machine, none}, "HW");
  const CandidateLayoutCosts& costs = prices.costs(shares, 4);
  ASSERT_GT(costs.patterns.size(), 2U);
  double bucket = 0;
  for (const auto& layer : bind(model, Strategy(), workload).layers)
    for (const auto& weight : layer->weights)
      if (weight.trained) bucket += static_cast<double>(weight.shape.volume() * 4);
  for (std::size_t p = 0; p < costs.patterns.size(); ++p) {
    const Plan plan = bind(model, all_as(shares.grid(), costs.patterns[p].rule()), workload);
    const PieceCost price(plan, machine, none, false, &plan.grid());
    for (std::size_t i = 0; i < plan.layers.size(); ++i) {
      const std::string what =
          fmt::format("{} of {} on \"{}\"", plan.layers[i].name, costs.patterns[p].rule(), shares.grid());
      const LayerCost cost = price.layer(static_cast<int>(i), false);
      expect_seconds(costs.microbatch[i][p],
                     cost.forward.total() + cost.backward_data.total() + cost.backward_filter.total() - cost.inputs,
                     what);
      expect_seconds(costs.sums[i][p], sums_of(plan.layers[i], price, bucket), what);
    }
  }
}

// On nodes of 8 ranks all groups cross nodes. On nodes of 24 ranks all groups are inside one node, except the longest,
// whose last rank is 28 along data alone.
TEST(LayoutCosts, AShortenedAxisCostsWhatTheWholeOneDoes) {
  for (const int node : {8, 24})
    for (const int data : {3, 5, 8}) {
      Machine machine = clustered_machine(node, 2);
      const Shares shares{.data = data, .y = 4};
      expect_whole(machine, shares);
      for (Level& level : machine.levels)
        for (const int ranks : {data, 4 * data})
          level.verbs[{Verb::all_reduce, ranks}] = {{{10, 300 * us * ranks}, {1e5, 9000 * us * ranks}}, ""};
      expect_whole(machine, shares);
    }
}

}  // namespace
}  // namespace partita::test::layout_costs_test
