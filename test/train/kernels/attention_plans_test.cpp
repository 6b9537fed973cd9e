// cuDNN has an engine that repeats its bits for the attention of the built-in models and the examples, in both passes,
// on cards of compute capability 8.0 and 9.0. A plan is made without a card, by a driver that finds none.
#include "src/backend/gpu/cuda/libraries/attention_plan.hpp"

#include "partita/model/builtin/builtin.hpp"
#include "src/model/attention_operators.hpp"
#include "test/support/h100.hpp"

#include <gtest/gtest.h>

#include <map>

namespace partita::test::attention_plans_test {
namespace {

using cuda::CudnnDescriptor;

constexpr Index workspace = Index{512} << 20;  // less than the default of a card with 40 GB or more

/// The cards for which plans are made, by compute capability.
const std::map<std::string, CudnnDescriptor>& cards() {
  static const std::map<std::string, CudnnDescriptor> all{{"9.0", h100()}, {"8.0", a100()}};
  return all;
}

/// Returns the call of self-attention in which a rank has everything.
AttentionGeometry call_of(const HeadGroups& heads, Index samples, Index places, bool causal) {
  AttentionGeometry call{.causal = causal ? 1 : 0,
                         .samples = samples,
                         .groups = heads.groups,
                         .queries = heads.in_group,
                         .dim = heads.dim,
                         .places = places,
                         .keys = places};
  const auto rows = [&](Index first) {
    return HeadRows{places, heads.groups * heads.step(), first * heads.dim, heads.step(), heads.dim};
  };
  call.q = call.dq = rows(0);
  call.k = call.dk = rows(heads.in_group);
  call.v = call.dv = rows(heads.in_group + 1);
  call.y = {places, heads.groups * heads.in_group * heads.dim, 0, heads.in_group * heads.dim, heads.dim};
  return call;
}

/// The attention of the built-in models at their full size, one of each model.
std::map<std::string, AttentionGeometry> builtin_calls() {
  constexpr Index samples = 8;
  std::map<std::string, AttentionGeometry> all;
  for (const std::string& name : builtin_models()) {
    const Model model = builtin_model(name);
    std::vector<Shape> shapes;
    for (std::size_t i = 0; i < model.layers().size(); ++i) {
      const Layer& layer = model.layers()[i];
      std::vector<Shape> inputs;
      for (const int input : layer.inputs) inputs.push_back(shapes[static_cast<std::size_t>(input)]);
      shapes.push_back(model.shape(static_cast<int>(i), inputs, samples));
      if (layer.op->kind() != "attention") continue;
      const auto& op = static_cast<const AttentionOperator&>(*layer.op);
      all.try_emplace(name, call_of(op.heads(inputs[0]), samples, inputs[0]['L'], op.causal()));
    }
  }
  return all;
}

/// The same for examples 13 to 15, whose heads have 8 channels.
std::map<std::string, AttentionGeometry> example_calls() {
  const auto heads = [](Index count, Index groups) {
    return HeadGroups(count, groups, Shape{{'N', 1}, {'C', 8 * (count + 2 * groups)}, {'L', 1}});
  };
  return {{"13_transformer", call_of(heads(4, 2), 8, 16, true)},
          {"14_ring_attention", call_of(heads(4, 1), 8, 32, true)},
          {"15_experts", call_of(heads(4, 4), 8, 16, true)}};
}

template <class Visit>
void each_call(const std::map<std::string, AttentionGeometry>& calls, std::initializer_list<DType> types,
               Visit&& visit) {
  for (const auto& [capability, card] : cards())
    for (const auto& [name, whole] : calls)
      for (const bool backward : {false, true})
        for (const DType dtype : types) {
          AttentionGeometry call = whole;
          call.backward = backward ? 1 : 0;
          call.dtype = static_cast<Index>(dtype);
          SCOPED_TRACE(fmt::format("{} on {}, {}, {}", name, capability, backward ? "backward" : "forward",
                                   partita::name(dtype)));
          visit(call, card);
        }
}

TEST(AttentionPlans, EachModelHasOne) {
  const auto calls = builtin_calls();
  EXPECT_EQ(calls.size(), 6U) << "bert, gpt, gpt-175b, gpt-22b, gpt2-small, vit";
  each_call(calls, {DType::bf16}, [](const AttentionGeometry& call, const CudnnDescriptor& card) {
    const auto path = cuda::attention_path(call, card, workspace);
    ASSERT_TRUE(path);
    EXPECT_TRUE(path->plan.tensor_cores());
    EXPECT_LE(path->part.bytes + path->plan.workspace(), workspace);
    EXPECT_TRUE(call.backward != 0 || path->part.samples == call.samples) << "forward needs hardly any workspace";
  });
}

// Whether an engine exists is known before it is compiled, so that this takes less time.
TEST(AttentionPlans, HalvesHaveEngines) {
  auto calls = builtin_calls();
  calls.merge(example_calls());
  each_call(calls, {DType::bf16, DType::f16}, [](const AttentionGeometry& call, const CudnnDescriptor& card) {
    const auto graph = cuda::cudnn_graph(cuda::attention_graph(call, attention_parts(call, workspace).at(0)), 16);
    ASSERT_TRUE(graph);
    const auto configs = cuda::proposed(*graph, card);
    EXPECT_TRUE(std::any_of(configs.begin(), configs.end(), [&](const CudnnDescriptor& config) {
      return cuda::keeps_to(cuda::engine_of(config), static_cast<DType>(call.dtype), {});
    }));
  });
}

// What cuDNN refuses: CUDNN_STATUS_NOT_SUPPORTED for each of its engines.
TEST(AttentionPlans, WhatHasNoEngineIsKnown) {
  const auto refused = [](const char* capability, Index dim, bool backward) {
    AttentionGeometry call = call_of(HeadGroups(4, 4, Shape{{'N', 1}, {'C', 12 * dim}, {'L', 1}}), 2, 64, true);
    call.backward = backward ? 1 : 0;
    return !cuda::attention_path(call, cards().at(capability), workspace);
  };
  EXPECT_TRUE(refused("8.0", 4, false)) << "heads of a multiple of 8 channels";
  EXPECT_TRUE(refused("9.0", 4, true));
  EXPECT_TRUE(refused("8.0", 136, true)) << "up to 128 channels backward before 9.0";
  EXPECT_FALSE(refused("9.0", 136, true));
  EXPECT_FALSE(refused("9.0", 264, false));
  EXPECT_TRUE(refused("9.0", 264, true)) << "up to 256 channels backward";
}

}  // namespace
}  // namespace partita::test::attention_plans_test
