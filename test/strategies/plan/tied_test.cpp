// Scores that share the table of an embedding: layouts, buckets, operations, traffic and what is refused, of small
// plans with numbers worked out by hand.
#include "partita/strategies/plan/memory.hpp"
#include "partita/strategies/plan/traffic.hpp"
#include "strategies/plan/step.hpp"
#include "test/strategies/cost/priced.hpp"
#include "test/support/error_of.hpp"

#include <fmt/ranges.h>

namespace partita::test::tied_test {

namespace {

constexpr Index tokens = 11, features = 6, bucket_elements = 96;  // 66, in multiples of 32

Model tied(bool bias = false) {
  Model m("tied");
  Value t = m.input("tokens", {.length = 4, .tokens = true});
  t = m.embedding("embedding", t, {.vocabulary = tokens, .features = features});
  t = m.gelu("gelu", m.linear("middle", t, {.features = features, .bias = false, .per_place = true}));
  t = m.linear("scores", t, {.features = tokens, .bias = bias, .per_place = true, .tied_to = "embedding"});
  m.softmax_cross_entropy("loss", t);
  return m;
}

Strategy two_groups(const std::string& kind, const std::string& grid = "", const std::string& other = "") {
  Strategy s;
  s.group({"tokens", "middle", Grid::parse(grid)}).group({"gelu", "loss", Grid::parse(other.empty() ? grid : other)});
  return s.schedule(kind, 2);
}

std::string buckets(const Plan& plan) {
  std::string text;
  for (const Bucket& bucket : plan.buckets) {
    for (const auto& [layer, weight] : bucket.entries) text += fmt::format("{} ", plan.layers[layer].name);
    text += bucket.other_copy < 0 ? "| " : fmt::format("with {} | ", bucket.other_copy);
  }
  return text;
}

std::string print(const Plan& plan, std::span<const StepOp> ops) {
  std::string text;
  for (const StepOp& op : ops)
    text += fmt::format("{}{} ", name(op.kind), op.layer < 0 ? "" : " " + plan.layers[op.layer].name);
  return text;
}

/// The operations of each action `reduce` of a stage.
std::string reduces(const Plan& plan, int stage) {
  const StepProgram program(plan, stage);
  std::string text;
  for (std::size_t i = 0; i < program.actions().size(); ++i)
    if (program.actions()[i].kind == Action::Kind::reduce)
      text += program.actions()[i].print() + ": " + print(plan, program.ops(i));
  return text;
}

/// What a rank sends for a layer once a step.
std::string once(const Plan& plan, const std::string& layer, int rank) {
  std::string text;
  for (int i = 0; i < std::ssize(plan.layers); ++i)
    if (plan.layers[i].name == layer)
      for (const auto& item : step_traffic(plan, i, rank))
        text += fmt::format("{} {} {}/{} ", item.role, name(item.verb), item.traffic.messages, item.traffic.bytes);
  return text;
}

void expect_refused(const Strategy& strategy, std::initializer_list<std::string_view> parts) {
  expect_error([&] { bound(tied(), strategy, 4); }, parts);
}

}  // namespace

TEST(Tied, TheTableHasOneLayout) {
  Strategy s("t=3");
  s.layer("embedding", {.weights = "V@t"});
  for (const char* scores : {"", "C@t", "N@t", "L@t"}) {
    const Plan plan = bound(tied(), s.layer("scores", {.output = scores}), 4);
    EXPECT_EQ(plan.layer("scores")->at.w[0].print(), "V@t C");
    EXPECT_EQ(plan.layer("scores")->at.y.print(), "N C@t L") << "whatever the output asks for";
  }
  const Plan columns = bound(tied(), Strategy("t=3").layer("embedding", {.output = "C@t"}), 4);
  EXPECT_EQ(columns.layer("scores")->at.w[0].print(), "V C@t");
  EXPECT_EQ(columns.layer("scores")->at.y.print(), "N C L sum@t");
}

// One group shares the table: one bucket, and one sum.
TEST(Tied, OneGroupHoldsTheTableOnce) {
  const Model whole = tied(true);
  const Plan plan = bound(whole, all_as("a=2", "N@a"), 4);
  EXPECT_FALSE(plan.layer("scores").copies_table);
  EXPECT_EQ(buckets(plan), "embedding middle scores | ") << "of the scores only the bias";
  EXPECT_EQ(reduces(plan, 0), "0reduce: finish_sums ");
  Model apart("apart");  // as tied(), with weights of their own
  for (const Layer& layer : whole.layers()) {
    std::vector<Value> inputs;
    for (const int input : layer.inputs) inputs.push_back(apart.value(whole.layers()[input].name));
    if (layer.name == "scores")
      apart.linear("scores", inputs[0], {.features = tokens, .per_place = true});
    else
      apart.layer(layer.name, layer.op, inputs);
  }
  EXPECT_EQ(apart.weights() - whole.weights(), tokens * features);
  const Plan other = bound(apart, all_as("a=2", "N@a"), 4);
  const MemoryUse less = state_memory(plan, 0), more = state_memory(other, 0);
  for (const MemoryClass of : {MemoryClass::weights, MemoryClass::gradients, MemoryClass::optimizer})
    EXPECT_EQ(more[of] - less[of], bucket_elements * 4);
}

// Where the gradients are summed over different axes, each layer sums its own, and the two are added.
TEST(Tied, OtherSumsNeedACopy) {
  Strategy s("a=2");
  s.layer("*", {.output = "N@a"}).layer("embedding", {.output = ""});
  const Plan plan = bound(tied(), s, 4);
  EXPECT_TRUE(plan.layer("scores").copies_table);
  EXPECT_EQ(buckets(plan), "scores with 2 | middle | embedding with 0 | ");
  EXPECT_EQ(reduces(plan, 0), "0reduce: wait_sent_gradients finish_sums add_copies embedding ");
  EXPECT_EQ(once(plan, "embedding", 0), "") << "both copies are here";
  expect_refused(s.optimizer_state(Strategy::OptimizerState::sharded),
                 {"layer 'scores'", "summed over (a), that of 'embedding' over ()", "over the same axes"});
}

// The first and the last stage hold a copy each, and their ranks of one number add the gradients.
TEST(Tied, StagesAddTheirGradients) {
  Strategy s = two_groups("1f1b", "a=2");
  s.layer("*", {.output = "N@a"});
  for (const bool shared : {false, true}) {
    if (shared) s.optimizer_state(Strategy::OptimizerState::sharded);
    const Plan plan = bound(tied(), s, 4);
    EXPECT_EQ(buckets(plan), "scores with 2 | middle | embedding with 0 | ");
    EXPECT_EQ(reduces(plan, 0), "0reduce: wait_sent_gradients finish_sums add_copies embedding ");
    EXPECT_EQ(reduces(plan, 1), "1reduce: wait_sent_gradients finish_sums add_copies scores ");
    const Index bytes = bucket_elements * 4 / (shared ? 2 : 1);
    for (const auto& [layer, rank] : {std::pair("embedding", 1), {"scores", 3}})
      EXPECT_NE(once(plan, layer, rank).find(fmt::format("dw of both copies all_reduce 1/{} ", bytes)),
                std::string::npos)
          << once(plan, layer, rank);
    for (int i = 0; i < std::ssize(plan.layers); ++i)
      for (const auto& item : layer_traffic(plan, i, 1))
        if (item.purpose == Purpose::copies) {
          EXPECT_EQ(other_rank(plan, item, 1), 3);
          EXPECT_EQ(sent_bytes(plan, item, 1), static_cast<double>(bytes)) << "each of two ranks sends its part twice";
        }
  }
}

// A stage adds after its last sum, when no other stage waits for what it computes.
TEST(Tied, InterleavedStagesAddLast) {
  Strategy s;
  s.group({"tokens", "embedding"}).group({"middle", "middle"}).group({"gelu", "gelu"}).group({"scores", "loss"});
  const Plan plan = bound(tied(), s.schedule("interleaved", 2), 4);
  EXPECT_EQ(plan.stage_of_group, (std::vector{0, 1, 0, 1}));
  EXPECT_NE(reduces(plan, 0).find("0reduce: wait_sent_gradients finish_sums add_copies embedding "), std::string::npos);
  EXPECT_EQ(reduces(plan, 1), "3reduce: finish_sums 1reduce: wait_sent_gradients finish_sums add_copies scores ");
}

// With two replicas each stage holds both copies, and adds them when it has added both replicas.
TEST(Tied, ReplicasAddBothCopiesAtHome) {
  const Plan plan = bound(tied(), two_groups("chimera"), 4);
  for (int stage = 0; stage < 2; ++stage) {
    const std::string ops = reduces(plan, stage);
    EXPECT_EQ(ops.substr(ops.rfind("add_replicas")), "add_replicas add_copies embedding ");
    EXPECT_EQ(once(plan, "scores", stage), "dw of both replicas all_reduce 1/384 ");
  }
  Strategy s;
  s.group({"tokens", "embedding"}).group({"middle", "middle"}).group({"gelu", "scores"}).group({"loss", "loss"});
  expect_refused(s.schedule("chimera", 2),
                 {"layer 'scores'", "two replicas", "with 'embedding'", "the first and the last"});
}

TEST(Tied, WhatCannotBeOneTable) {
  Strategy s("t=2");
  s.layer("embedding", {.weights = "V@t"});
  expect_refused(s.layer("scores", {.weights = "C@t"}),
                 {"layer 'scores' (linear)", "weights = \"C@t\"", "the table of 'embedding', which is \"V@t C\""});
  expect_refused(two_groups("1f1b", "a=2", "a=4"),
                 {"layer 'scores' (linear)", "table of 'embedding'", "\"a=4\" and \"a=2\"", "the same grid"});
  EXPECT_NO_THROW(
      bound(tied(), Strategy("t=2").layer("embedding", {.weights = "V@t"}).layer("scores", {.weights = "V@t"}), 4));
}

// The sum of both copies is priced on both stages: 384 bytes between two ranks.
TEST(Tied, TheSumHasItsPrice) {
  const Plan plan = bound(tied(), two_groups("1f1b"), 4);
  const Cost cost = estimate(plan, round_machine());
  EXPECT_NEAR(cost.parts.grad_reduce, 2 * us + 384 / 1e9, 1 * us) << "the cheapest all-reduce of two ranks";
  EXPECT_GT(cost.parts.grad_reduce, 1 * us);
}

}  // namespace partita::test::tied_test
