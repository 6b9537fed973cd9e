// Shortened rules give every layer the settings that it had.
#include "strategies/planner/short_rules.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "test/support/error_of.hpp"
#include "test/support/random_case.hpp"

#include <gtest/gtest.h>

namespace partita::test::short_rules_test {
namespace {

/// Expects that both strategies bind every layer alike, or that both are refused.
void expect_same_plan(const Model& model, const Strategy& before, const Strategy& after, const Workload& workload) {
  const auto bound = [&](const Strategy& strategy) { return bind(model, strategy, workload); };
  if (!error_of([&] { bound(before); }).empty()) {
    EXPECT_NE(error_of([&] { bound(after); }), "");
    return;
  }
  const Plan a = bound(before), b = bound(after);
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    LayerBinding x = *a.layers[i].binding, y = *b.layers[i].binding;
    x.notes = y.notes = {};  // a pattern's note names it
    EXPECT_TRUE(x == y) << a.layers[i].name;
    EXPECT_EQ(a.layers[i].recompute, b.layers[i].recompute) << a.layers[i].name;
  }
}

std::string print_rules(const Strategy& strategy) {
  std::string text;
  for (const auto& [match, rule, place, value] : strategy.rules()) {
    text += fmt::format("{}:", match);
    if (rule.output) text += fmt::format(" {}", *rule.output);
    if (rule.algorithm) text += fmt::format(" {}", rule.algorithm->text());
    if (rule.recompute) text += fmt::format(" recompute {}", *rule.recompute);
    text += "\n";
  }
  return text;
}

TEST(ShortRules, KeepWhatEveryLayerHas) {
  int shorter = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const RandomCase drawn(seed);
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, drawn.print()));
    const Strategy made = with_short_rules(drawn.model, drawn.strategy);
    expect_same_plan(drawn.model, drawn.strategy, made, {.batch = drawn.batch, .optimizer = drawn.optimizer});
    shorter += made.rules().size() < drawn.strategy.rules().size() ? 1 : 0;
  }
  EXPECT_GT(shorter, 30);
}

/// A rule for each layer: by space at first, by channels from the first layer whose name contains `from`.
Strategy layer_by_layer(const Model& model, const std::string& from) {
  Strategy strategy("data=2 y=2");
  bool channels = false;
  for (std::size_t i = 0; i < model.layers().size(); ++i) {
    const std::string& name = model.layers()[i].name;
    channels = channels || name.find(from) != std::string::npos;
    const Shape& shape = model.shapes()[i];
    const char* cut = channels && shape.has('C') ? " C@y" : !channels && shape.has('H') ? " H@y" : "";
    strategy.layer(name, {.output = fmt::format("N@data{}", cut)});
  }
  return strategy;
}

TEST(ShortRules, AreFewForBlocksOfLayers) {
  const Model model = builtin_model("resnet50", {.extent = 64});
  Strategy strategy = layer_by_layer(model, "res4a");
  strategy.layer("fc", {.algorithm = Algorithm::summa_a});
  for (const Layer& layer : model.layers())
    if (layer.name.starts_with("bn_")) strategy.layer(layer.name, {.recompute = true});
  const Strategy made = with_short_rules(model, strategy);
  expect_same_plan(model, strategy, made, {.batch = 4, .optimizer = {}});
  EXPECT_EQ(print_rules(made),
            "*: N@data H@y\n"
            "*res4*: N@data C@y\n"
            "*5*: N@data C@y\n"
            "fc: N@data C@y summa-a\n"
            "bn_*: recompute true\n");
}

// An exact rule may not ask for what a layer cannot do; a pattern's value does not count there.
TEST(ShortRules, PatternsMatchLayersThatCannotHaveTheirValue) {
  const Model model = builtin_model("mlp", {.widths = {8, 8}});
  Strategy strategy("data=2");
  strategy.layer("*", {.output = "N@data", .recompute = true});
  for (const char* name : {"fc1", "fc2", "scores"}) strategy.layer(name, {.recompute = false});
  const Strategy made = with_short_rules(model, strategy);
  expect_same_plan(model, strategy, made, {.batch = 4, .optimizer = {}});
  EXPECT_EQ(print_rules(made), "*: N@data recompute false\n");
}

TEST(ShortRules, SomeStrategiesStayAsTheyAre) {
  const Model model = builtin_model("mlp", {.widths = std::vector<Index>(70, 4)});
  Strategy grids("c=2");
  grids.group({"image", "fc3"}).group({"fc4", "loss", Grid::parse("data=2")});
  Strategy patterns("c=2"), values("data=2");
  patterns.layer("fc*", {.weights = "F@c"});
  for (Strategy* strategy : {&grids, &patterns})
    for (const char* name : {"fc1", "fc2", "fc3"}) strategy->layer(name, {.output = "C@c"});
  for (int i = 1; i <= 70; ++i)  // 70 texts, though of three meanings
    values.layer(fmt::format("fc{}", i),
                 {.output = fmt::format("{}N@data", std::string(static_cast<std::size_t>(i), ' '))});
  for (const Strategy* strategy : {&grids, &patterns, &values})
    EXPECT_EQ(with_short_rules(model, *strategy).print(), strategy->print());
}

TEST(ShortRules, KeepStagesAndScheduleAndAreNoLongerThanBefore) {
  const Model model = builtin_model("mlp", {.widths = {8, 8, 8}});
  Strategy strategy("c=2");
  strategy.group({"image", "fc2"}).group({"fc3", "loss"}).schedule(ScheduleKind::one_f_one_b, 4);
  strategy.layer("fc*", {.output = "C@c"}).optimizer_state(Strategy::OptimizerState::sharded);
  EXPECT_EQ(with_short_rules(model, strategy).print(), strategy.print()) << "one rule cannot be fewer";
  for (const char* name : {"fc1", "fc2", "fc3"}) strategy.layer(name, {.output = "C@c"});
  const Strategy made = with_short_rules(model, strategy);
  EXPECT_EQ(made.rules().size(), 1U) << print_rules(made);
  EXPECT_EQ(made.with_rules({}).print(), strategy.with_rules({}).print());
}

}  // namespace
}  // namespace partita::test::short_rules_test
