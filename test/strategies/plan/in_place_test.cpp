// Which layers overwrite their input, and which activations a backend may compute with the layer before.
#include "partita/model/model.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/memory.hpp"

#include <gtest/gtest.h>

namespace partita::in_place_test {
namespace {

/// A model with an activation "f" that reads the layer `read`, which is made from a convolution.
struct Example {
  Model model{"example"};
  Value conv = model.conv("conv", model.input("in", {.channels = 2, .spatial = {4, 4}}),
                          {.filters = 3, .kernel = 3, .padding = 1});

  Plan plan(const Value& f, const Strategy& strategy = {}) {
    model.softmax_cross_entropy("loss", model.linear("out", f, {.features = 2}));
    return bind(model, strategy, {.batch = 4, .optimizer = {}});
  }
};

/// "in place", "follows" or "apart".
std::string how(const Plan& plan, std::string_view name = "f") {
  const LayerPlan& layer = plan.layer(name);
  const LayerPlan& before = plan.layers[layer.inputs.front()];
  EXPECT_EQ(before.next_activation.has_value(), layer.fusible);
  if (layer.fusible) {
    EXPECT_EQ(partita::name(before.next_activation->kind), layer.op->kind());
  }
  EXPECT_LE(layer.fusible, layer.in_place);
  return layer.fusible ? "follows" : layer.in_place ? "in place" : "apart";
}

TEST(InPlace, AnActivationFollowsAConvolutionOrAProduct) {
  Example a, b;
  EXPECT_EQ(how(a.plan(a.model.relu("f", a.conv))), "follows");
  EXPECT_EQ(how(b.plan(b.model.tanh("f", b.model.linear("linear", b.conv, {.features = 5})))), "follows");
}

TEST(InPlace, ANormalizationTakesReluAlongInBothPasses) {
  for (const bool groups : {false, true}) {
    Example a;
    const Value norm = groups ? a.model.group_norm("norm", a.conv, {.groups = 3}) : a.model.batch_norm("norm", a.conv);
    const Plan plan = a.plan(a.model.relu("f", norm));
    EXPECT_EQ(how(plan), "follows");
    EXPECT_EQ(plan.layer("norm").activation_fusion(), ActivationFusion::both);
    EXPECT_TRUE(plan.layer("norm").keeps().y);
    EXPECT_TRUE(plan.layer("f").computed_by_producer);
    EXPECT_TRUE(plan.layer("f").forwards_gradient);
  }
}

TEST(InPlace, AnAdditionTakesReluAlongInItsForward) {
  Example a;
  const Value other = a.model.conv("other", a.conv, {.filters = 3}),
              third = a.model.conv("third", a.conv, {.filters = 3});
  const Plan plan = a.plan(a.model.relu("f", a.model.add("sum", other, third)));
  EXPECT_EQ(how(plan), "follows");
  EXPECT_TRUE(plan.layer("sum").in_place);
  EXPECT_TRUE(plan.layer("sum").forwards_gradient);
  EXPECT_EQ(plan.layer("sum").activation_fusion(), ActivationFusion::forward);
  EXPECT_TRUE(plan.layer("f").computed_by_producer);
  EXPECT_FALSE(plan.layer("f").forwards_gradient) << "the gradient is masked once for both inputs";
}

TEST(InPlace, OtherLayersDoNotApplyIt) {
  Example a, b;
  EXPECT_EQ(how(a.plan(a.model.leaky_relu("f", a.model.batch_norm("norm", a.conv, {})))), "in place");
  EXPECT_EQ(how(b.plan(b.model.relu("f", b.model.max_pool("pool", b.conv, {})))), "in place");
}

TEST(InPlace, WhatIsNeededStays) {
  Example derivative, twice, images, linear;
  EXPECT_EQ(how(derivative.plan(derivative.model.gelu("f", derivative.conv))), "apart")
      << "its backward needs its input";
  const Value f = twice.model.relu("f", twice.conv);
  EXPECT_EQ(how(twice.plan(twice.model.add("sum", f, twice.conv))), "apart") << "two layers read the convolution";
  Model& model = images.model;
  EXPECT_EQ(how(images.plan(model.relu("f", model.relu("first", images.conv)))), "apart") << "the first one keeps it";
  EXPECT_EQ(how(linear.plan(linear.model.relu(
                "f", linear.model.linear("linear", linear.conv,
                                         {.features = 5, .activation = Activation{Activation::Kind::tanh}})))),
            "apart")
      << "the layer keeps its output";
}

TEST(InPlace, TheBatchStays) {
  Model model("example");
  const Value f = model.relu("f", model.input("in", {.channels = 2, .spatial = {4, 4}}));
  model.softmax_cross_entropy("loss", model.linear("out", f, {.features = 2}));
  EXPECT_EQ(how(bind(model, Strategy(), {.batch = 4, .optimizer = {}})), "apart");
}

TEST(InPlace, StagesAndRecomputedLayersNeedTheInput) {
  Example a, b, c;
  const Value f = a.model.relu("f", a.conv), g = b.model.relu("f", b.conv), h = c.model.relu("f", c.conv);
  EXPECT_EQ(how(a.plan(f, Strategy().group({"in", "conv"}).group({"f", "loss"}).schedule("gpipe", 2))), "apart");
  EXPECT_EQ(how(b.plan(g, Strategy().layer("f", {.recompute = true}))), "apart");
  EXPECT_EQ(how(c.plan(h, Strategy().layer("conv", {.recompute = true}).layer("f", {.recompute = true}))), "follows");
}

TEST(InPlace, AfterARedistributionNothingIsFused) {
  Example a;
  const Value f = a.model.relu("f", a.conv);
  EXPECT_EQ(how(a.plan(f, Strategy("y=2").layer("conv", {.output = "N@y"}).layer("f", {.output = "H@y"}))), "in place");
}

/// A block of a transformer without its attention: add(t, drop(linear(norm(t)))), and what reads the sum.
struct Block {
  Model model{"block"};
  Value in = model.input("in", {.channels = 4, .length = 6});
  Value t = linear("t", in), norm = model.layer_norm("norm", t, {.per_place = true}), side = linear("side", norm);

  Value linear(const char* name, const Value& x) { return model.linear(name, x, {.features = 4, .per_place = true}); }
  Plan plan(const Value& y, const Strategy& strategy = {}, bool training = true) {
    model.mean_squared_error("loss", y);
    return bind(model, strategy, {.batch = 4, .training = training, .optimizer = {}});
  }
};

TEST(InPlace, AnAdditionDropsElementsOfItsInput) {
  for (const int number : {0, 1})
    for (const bool training : {false, true}) {
      Block b;
      const Value drop = b.model.dropout("drop", b.side, {.rate = 0.3});
      const Plan plan =
          b.plan(number == 0 ? b.model.add("add", drop, b.t) : b.model.add("add", b.t, drop), {}, training);
      EXPECT_TRUE(plan.layer("drop").in_place);
      EXPECT_TRUE(plan.layer("drop").computed_by_reader);
      EXPECT_FALSE(plan.layer("drop").forwards_gradient);
      EXPECT_EQ(plan.layer("add").drops, number);
      EXPECT_TRUE(plan.layer("add").forwards_gradient);
      EXPECT_EQ(plan.layer("add").in_place, number == 0);
    }
}

TEST(InPlace, OtherDropoutsRunThemselves) {
  Block none, twice, kept, relu, both, itself;
  const auto alone = [](const Plan& plan) {
    return !plan.layer("drop").computed_by_reader && plan.layer("add").drops < 0;
  };
  EXPECT_TRUE(alone(none.plan(none.model.add("add", none.t, none.model.dropout("drop", none.side, {.rate = 0})))));
  Value drop = twice.model.dropout("drop", twice.side);
  EXPECT_TRUE(alone(twice.plan(twice.model.add("add", drop, twice.model.add("first", drop, twice.t)))));
  drop = kept.model.dropout("drop", kept.t);
  EXPECT_TRUE(alone(kept.plan(kept.model.add("add", drop, kept.side)))) << "others read its input";
  drop = itself.model.dropout("drop", itself.side);
  EXPECT_TRUE(alone(itself.plan(itself.model.add("add", drop, drop)))) << "both inputs are dropped";
  drop = relu.model.dropout("drop", relu.side);
  EXPECT_TRUE(alone(relu.plan(relu.model.relu("f", relu.model.add("add", drop, relu.t)))))
      << "the addition computes ReLU";
  const Value first = both.model.dropout("first", both.side), other = both.linear("other", both.t);
  const Plan plan = both.plan(both.model.add("add", first, both.model.dropout("drop", other)));
  EXPECT_EQ(plan.layer("add").drops, 0) << "the first of two";
  EXPECT_FALSE(plan.layer("drop").computed_by_reader);
}

TEST(InPlace, StagesRecomputationAndLayoutsPartDropouts) {
  const auto drops = [](const Strategy& strategy) {
    Block b;
    const Plan plan = b.plan(b.model.add("add", b.t, b.model.dropout("drop", b.side)), strategy);
    EXPECT_EQ(plan.layer("drop").computed_by_reader, plan.layer("add").drops == 1);
    return plan.layer("add").drops == 1;
  };
  EXPECT_TRUE(drops(Strategy("data=2").layer("*", {.output = "N@data"})));
  EXPECT_FALSE(drops(Strategy("data=2").layer("drop", {.output = "N@data"}).layer("add", {.output = "L@data"})));
  EXPECT_FALSE(drops(Strategy().group({"in", "drop"}).group({"add", "loss"}).schedule("gpipe", 2)));
  EXPECT_TRUE(drops(Strategy().group({"in", "norm"}).group({"side", "loss"}).schedule("gpipe", 2)));
  EXPECT_FALSE(drops(Strategy().layer("add", {.recompute = true}))) << "it reads the input twice";
  EXPECT_TRUE(drops(Strategy().layer("*", {.recompute = true})));
}

TEST(InPlace, ANormalizationAddsItsGradientToOthers) {
  const auto adds = [](const Strategy& strategy, bool training = true) {
    Block b;
    return b.plan(b.model.add("add", b.t, b.side), strategy, training).layer("norm").adds_gradient;
  };
  EXPECT_TRUE(adds({}));
  EXPECT_FALSE(adds({}, false));
  EXPECT_TRUE(adds(Strategy("y=3").layer("*", {.output = "L@y"})));
  EXPECT_FALSE(adds(Strategy("y=2").layer("t", {.output = "N@y"}).layer("norm", {.output = "L@y"})));
  // The gradient of the addition comes from another stage, before that of the normalization or after it.
  EXPECT_TRUE(adds(Strategy().group({"in", "norm"}).group({"side", "loss"}).schedule("gpipe", 2)));
  EXPECT_TRUE(adds(Strategy().group({"in", "t"}).group({"norm", "loss"}).schedule("gpipe", 2)));
  EXPECT_FALSE(
      adds(Strategy().group({"in", "t"}).group({"norm", "norm"}).group({"side", "loss"}).schedule("gpipe", 2)));
  Block alone, input;
  EXPECT_FALSE(alone.plan(alone.side).layer("norm").adds_gradient) << "nobody else reads its input";
  Model& m = input.model;
  const Value first = m.layer_norm("first", input.in, {.per_place = true});
  EXPECT_FALSE(input.plan(m.add("add", input.side, m.add("sum", first, input.in))).layer("first").adds_gradient)
      << "the input has no gradient";
}

// In an evaluation nothing is kept for a backward. So the peak is in GELU, or in the linear layer, which follows ReLU.
TEST(InPlace, HoldsOneTensor) {
  Example a, b;
  const auto activations = [](Example& of, const Value& f) {
    of.model.softmax_cross_entropy("loss", of.model.linear("out", f, {.features = 2}));
    const Plan plan = bind(of.model, Strategy(), {.batch = 4, .training = false, .optimizer = {}});
    return peak_memory(plan, 0).each[MemoryClass::activations];
  };
  const Index of_conv = 4 * 3 * 16 * 4, of_linear = 4 * 2 * 4;
  EXPECT_EQ(activations(b, b.model.gelu("f", b.conv)) - activations(a, a.model.relu("f", a.conv)), of_conv - of_linear);
}

}  // namespace
}  // namespace partita::in_place_test
