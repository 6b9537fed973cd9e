#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/traffic.hpp"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace partita::experts_plan_test {
namespace {

std::string verbs(std::initializer_list<LayerPlan::Steps> redistributions) {
  std::vector<std::string_view> all;
  for (const auto& steps : redistributions)
    for (const auto& step : steps) all.push_back(name(step.verb));
  return fmt::format("{}", fmt::join(all, " "));
}

/// A transformer of one block with four experts, each of 16 channels and three slots of six places.
LayerPlan bind_experts(const std::string& samples, const std::string& experts, const char* layer, Index* bytes) {
  const Experts routing{.experts = 4, .chosen = 2, .capacity = 1};
  const Model m =
      builtin_model("gpt", {.transformer = {.layers = 1, .hidden = 16, .heads = 4, .sequence = 6, .experts = routing}});
  Strategy s("a=2");
  s.layer("*", {.output = samples}).layer("*_expert_*", {.output = experts});
  const Plan plan = bind(m, s, {.batch = 4, .dtype = DType::f32, .optimizer = {}});
  *bytes = 0;
  for (const auto& item : layer_traffic(plan, m.find(layer), 0)) *bytes += item.traffic.bytes;
  return plan.layer(layer);
}

// Samples become experts, and experts samples. Half of what a rank has is of the other one's experts, or samples.
TEST(Bind, ExpertsOverTheRanksOfSamplesAreTwoAllToAlls) {
  constexpr Index slots = 2 * 4 * 16 * 3 * 4 / 2;  // bytes: 2 samples, 4 experts, 16 channels, 3 slots of f32; a half
  Index bytes = 0;
  const LayerPlan up = bind_experts("N@a", "C@a", "block1_expert_up", &bytes);
  EXPECT_EQ(bytes, 2 * slots) << "x and dx";
  EXPECT_EQ(up->at.x[0].print(), "N C@a L");
  EXPECT_EQ(up->at.w[0].print(), "F@a C");
  EXPECT_EQ(up->at.dw[0].partial(), 0U) << "the gradient of an expert needs no sum";
  EXPECT_EQ(verbs({up->redistribute_input[0], up->redistribute_dx[0]}), "exchange exchange");
  const LayerPlan down = bind_experts("N@a", "C@a", "block1_expert_down", &bytes);
  EXPECT_EQ(bytes, 0);
  EXPECT_EQ(down->at.algorithm, Algorithm::groups);
  const LayerPlan combine = bind_experts("N@a", "C@a", "block1_combine", &bytes);
  EXPECT_EQ(bytes, 2 * slots) << "slots and their gradients; no scores";
  EXPECT_EQ(combine->at.x[1].print(), "N@a C L");
  EXPECT_EQ(verbs({combine->redistribute_input[1], combine->redistribute_dx[1]}), "exchange exchange");
  const LayerPlan dispatch = bind_experts("N@a", "C@a", "block1_dispatch", &bytes);
  EXPECT_EQ(bytes, 0);
  EXPECT_EQ(dispatch->at.y.print(), "N@a C L");
}

// Places that are cut become samples, or are gathered where there are too few samples.
TEST(Bind, RoutingNeedsAllPlacesOfASample) {
  Model m("experts");
  const Value x = m.linear("x", m.input("in", {.channels = 3, .length = 6}), {.features = 4, .per_place = true});
  const Value scores = m.linear("scores", x, {.features = 2, .per_place = true});
  m.softmax_cross_entropy("loss", m.dispatch("dispatch", x, scores, {.experts = 2}));
  const auto bound = [&](Index batch, const LayerRule& rule) {
    Strategy s("b=1 a=2");
    s.layer("*", {.output = "N@b L@a"}).layer("dispatch", rule);
    return bind(m, s, {.batch = batch, .optimizer = {}}).layer("dispatch");
  };
  const LayerPlan samples = bound(2, {});
  EXPECT_EQ(samples->at.x[0].print(), "N@(b,a) C L");
  EXPECT_EQ(verbs({samples->redistribute_input[0], samples->redistribute_input[1], samples->redistribute_output}),
            "exchange exchange exchange");
  const LayerPlan experts = bound(2, {.output = "N@b C@a"});
  EXPECT_EQ(experts->at.y.print(), "N@(b,a) C L");
  EXPECT_EQ(verbs({experts->redistribute_output}), "exchange");
  for (const LayerPlan& gathered : {bound(1, {}), bound(2, {.input = "N@b"})}) {
    EXPECT_EQ(gathered->at.x[0].print(), "N@b C L");
    EXPECT_EQ(verbs({gathered->redistribute_input[0], gathered->redistribute_input[1]}), "all_gather all_gather");
  }
}

}  // namespace
}  // namespace partita::experts_plan_test
