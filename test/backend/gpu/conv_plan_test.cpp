// cuDNN makes plans from the properties of a card that need not be there. So each convolution that a backend would ask
// for is checked: its extents, padding, strides and types.
#include "src/backend/gpu/cuda/libraries/conv_plan.hpp"

#include "partita/base/error.hpp"
#include "src/backend/common/geometry.hpp"
#include "test/support/h100.hpp"
#include "test/support/naive.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

namespace partita::cuda::conv_plan_test {
namespace {

using test::h100;

constexpr std::array passes{ConvPass::forward, ConvPass::backward_data, ConvPass::backward_filter};
constexpr EngineLimits exact{.tf32 = false, .workspace = Index{256} << 20},
    rounded{.tf32 = true, .workspace = Index{256} << 20};

std::vector<ConvPlan> plans(const ConvProblem& problem, DType dtype, const EngineLimits& limits = exact) {
  return conv_plans(dense_call(problem, dtype), h100(), limits, 3).fitting;
}

/// The convolutions of ResNet-50, and of its first layers on the inner of four ranks that share the rows: channels,
/// filters, kernel, stride and rows.
std::vector<ConvProblem> resnet_problems() {
  struct Layer {
    Index channels, filters, kernel, stride, rows;
  };
  constexpr std::array<Layer, 12> layers{{{3, 64, 7, 2, 224},
                                          {64, 64, 1, 1, 56},
                                          {64, 64, 3, 1, 56},
                                          {64, 256, 1, 1, 56},
                                          {256, 128, 1, 2, 56},
                                          {128, 128, 3, 1, 28},
                                          {256, 512, 1, 2, 56},
                                          {256, 256, 3, 1, 14},
                                          {1024, 512, 1, 2, 14},
                                          {512, 512, 3, 1, 7},
                                          {512, 512, 3, 2, 7},
                                          {512, 2048, 1, 1, 7}}};
  std::vector<ConvProblem> problems;
  for (const auto& [channels, filters, kernel, stride, rows] : layers)
    for (const int ranks : {1, 4}) {
      const Window window{kernel, stride, 1, kernel / 2, kernel / 2};
      const std::array windows{window, window};
      const Index outputs = window.outputs(rows);
      const Shape shape_y{{'N', 8}, {'C', filters}, {'H', outputs}, {'W', outputs}};
      const Shape shape_w{{'F', filters}, {'C', channels}, {'H', kernel}, {'W', kernel}};
      const Shape shape_x{{'N', 8}, {'C', channels}, {'H', rows}, {'W', rows}};
      Box y(shape_y);
      if (ranks > 1) y[2] = {outputs * 1 / ranks, outputs * 2 / ranks};
      Box x = inputs_of(windows, y, Box(shape_x));
      for (const ConvPass pass : passes)
        problems.emplace_back(pass, windows, x, Box(shape_w), y, pass == ConvPass::forward && stride == 1);
    }
  return problems;
}

TEST(ConvPlan, AnEngineRunsEveryConvolutionOfResNetInEveryType) {
  for (const ConvProblem& problem : resnet_problems()) {
    SCOPED_TRACE(problem.print());
    ConvProblem of = problem;
    of.with_bias = 0;
    EXPECT_FALSE(plans(of, DType::f32).empty());
    EXPECT_FALSE(plans(problem, DType::bf16).empty());
    EXPECT_FALSE(plans(problem, DType::f16).empty());
    EXPECT_FALSE(plans(problem, DType::f32, rounded).empty());
  }
}

// Small, uneven and prime extents, padding on one side, dilation and groups, on boxes of larger tensors.
TEST(ConvPlan, AnEngineRunsDrawnConvolutions) {
  int asked = 0;
  for (int spatial = 1; spatial <= 3; ++spatial) {
    naive::Generator random(static_cast<unsigned>(400 + spatial));
    for (int i = 0; i < 40; ++i) {
      const naive::Case c = random.conv(spatial);
      const ConvProblem problem(passes[i % 3], c.slides, c.x, c.w, c.y, false);
      if (problem.empty()) continue;
      SCOPED_TRACE(problem.print());
      ++asked;
      EXPECT_FALSE(plans(problem, DType::f32).empty());
    }
  }
  EXPECT_GE(asked, 60) << "too few cases compute anything";
}

// The strides are those of tensors that hold more than the part that is read.
TEST(ConvPlan, AnEngineRunsOnParts) {
  for (const ConvPass pass : passes) {
    const std::array windows{Window{3, 1, 1, 1, 1}, Window{3, 1, 1, 1, 1}};
    const Box x(Shape{{'N', 4}, {'C', 32}, {'H', 16}, {'W', 20}}), w(Shape{{'F', 32}, {'C', 32}, {'H', 3}, {'W', 3}});
    Box y = x;
    y[2] = {3, 9};
    y[3] = {0, 7};
    ConvCall call = dense_call(ConvProblem(pass, windows, x, w, y, false), DType::bf16);
    const auto dense = conv_plans(call, h100(), exact, 1).fitting;
    call.x_strides = call.y_strides = {16 * 20 * 32, 16 * 20 * 32, 20 * 32, 32};
    const auto part = conv_plan(call, h100(), exact, dense.at(0).name());
    ASSERT_TRUE(part) << call.problem.print();
  }
}

// f32 on tensor cores is TF32.
TEST(ConvPlan, TakesTensorCoresForF32OnlyIfItMay) {
  const ConvCall call = dense_call(resnet_problems()[6], DType::f32);
  std::set<std::string> with, without;
  for (const auto& plan : conv_plans(call, h100(), rounded, 100).fitting) with.insert(plan.name());
  for (const auto& plan : conv_plans(call, h100(), exact, 100).fitting) without.insert(plan.name());
  EXPECT_GT(with.size(), without.size());
  EXPECT_TRUE(std::includes(with.begin(), with.end(), without.begin(), without.end()));
}

TEST(ConvPlan, KeepsToTheWorkspace) {
  const ConvProblem problem = resnet_problems()[2];
  for (const auto& plan : conv_plans(dense_call(problem, DType::bf16), h100(), {.workspace = 0}, 20).fitting)
    EXPECT_EQ(plan.workspace(), 0) << plan.name();
}

// On tensor cores cuDNN computes what follows a convolution with it. For an activation without a bias it has no engine.
TEST(ConvPlan, TakesBiasAndActivationAlong) {
  for (const Activation::Kind kind : {Activation::Kind::relu, Activation::Kind::sigmoid, Activation::Kind::tanh})
    for (const auto& [dtype, limits] : {std::pair{DType::bf16, exact}, {DType::f16, exact}, {DType::f32, rounded}}) {
      ConvProblem problem = resnet_problems()[12];
      ASSERT_EQ(problem.pass, ConvPass::forward);
      problem.with_bias = 1;
      problem.apply(Activation{kind});
      SCOPED_TRACE(problem.print() + ", " + std::string(name(dtype)));
      EXPECT_FALSE(plans(problem, dtype, limits).empty());
    }
}

TEST(ConvPlan, WhatFollowsIsTakenOutFromItsEnd) {
  ConvProblem problem = resnet_problems()[12];
  problem.with_bias = 1;
  problem.apply(Activation{Activation::Kind::tanh});
  EXPECT_TRUE(simplify(problem));
  EXPECT_EQ(problem.then, 0);
  EXPECT_EQ(problem.with_bias, 1);
  EXPECT_TRUE(simplify(problem));
  EXPECT_EQ(problem.with_bias, 0);
  EXPECT_FALSE(simplify(problem));
}

// A smaller batch may then have a faster engine.
TEST(ConvPlan, TellsWhetherTheFastestEngineNeedsMoreWorkspace) {
  int more = 0;
  for (const ConvProblem& problem : resnet_problems()) {
    SCOPED_TRACE(problem.print());
    const auto all = conv_plans(dense_call(problem, DType::bf16), h100(), {.workspace = Index{1} << 40}, 1);
    if (all.fitting.empty()) continue;  // none adds a bias
    EXPECT_FALSE(all.more_workspace);
    const Index needed = all.fitting[0].workspace();
    if (needed == 0) continue;
    ++more;
    EXPECT_TRUE(conv_plans(dense_call(problem, DType::bf16), h100(), {.workspace = needed - 1}, 1).more_workspace);
    EXPECT_FALSE(conv_plans(dense_call(problem, DType::bf16), h100(), {.workspace = needed}, 1).more_workspace);
  }
  EXPECT_GE(more, 5) << "too few engines need a workspace";
}

TEST(ConvPlan, TheFirstNameIsOfTheFirstPlan) {
  const ConvCall call = dense_call(resnet_problems()[6], DType::bf16);
  const auto all = conv_plans(call, h100(), exact, 4).fitting;
  ASSERT_GE(all.size(), 2U);
  for (const auto& plan : all) EXPECT_EQ(conv_plan(call, h100(), exact, plan.name())->name(), plan.name());
  EXPECT_EQ(conv_plan(call, h100(), exact, "engine 123456")->name(), all[0].name());
}

/// A convolution of whole square images, without padding if its kernel is 1.
ConvProblem square(ConvPass pass, Index batch, Index channels, Index filters, Index size, Index kernel, Index stride) {
  const Window window{kernel, stride, 1, kernel / 2, kernel / 2};
  const Index out = window.outputs(size);
  return {pass,
          std::array{window, window},
          Box(Shape{{'N', batch}, {'C', channels}, {'H', size}, {'W', size}}),
          Box(Shape{{'F', filters}, {'C', channels}, {'H', kernel}, {'W', kernel}}),
          Box(Shape{{'N', batch}, {'C', filters}, {'H', out}, {'W', out}}),
          false};
}

// An engine has tile sizes and other settings, its knobs. Without them most of cuDNN's proposals would have one name.
TEST(ConvPlan, NamesHoldTheKnobs) {
  for (const ConvPass pass : passes) {
    const ConvCall call = dense_call(square(pass, 256, 256, 256, 14, 3, 1), DType::bf16);
    SCOPED_TRACE(call.problem.print());
    std::set<std::string> names;
    const auto all = conv_plans(call, h100(), exact, 100).fitting;
    for (const auto& plan : all) {
      names.insert(plan.name());
      const auto again = conv_plan(call, h100(), exact, plan.name());
      ASSERT_TRUE(again);
      EXPECT_EQ(again->name(), plan.name());
      EXPECT_EQ(again->workspace(), plan.workspace());
      EXPECT_EQ(again->tensor_cores(), plan.tensor_cores());
    }
    EXPECT_EQ(names.size(), all.size());
    EXPECT_GT(names.size(), 20U);
    EXPECT_GT(std::count_if(names.begin(), names.end(), [](const auto& name) { return name.find('=') != name.npos; }),
              20);
  }
}

// With stride 2 and kernel 1 no output reads the last row and column. cuDNN is given all of x, since for a part of it,
// with the strides of all, only engines without tensor cores fit.
TEST(ConvPlan, InputsThatAStrideLeavesOutAreNotCutOff) {
  for (const ConvPass pass : passes)
    for (const Index channels : {256, 512, 1024}) {
      const ConvProblem problem = square(pass, 256, channels, 2 * channels, 14336 / channels, 1, 2);
      SCOPED_TRACE(problem.print());
      EXPECT_EQ(problem.sides[1].in, 14336 / channels);
      EXPECT_EQ(problem.sides[1].pad_hi, 0);
      EXPECT_EQ(problem.trimmed().sides[1].in, 14336 / channels - 1);
      const auto all = conv_plans(dense_call(problem, DType::bf16), h100(), exact, 1).fitting;
      ASSERT_FALSE(all.empty());
      EXPECT_TRUE(all.front().tensor_cores()) << all.front().name();
    }
}

TEST(ConvPlan, WrongProblemsAreRefused) {
  const std::array windows{Window{3, 1, 1, 1, 1}, Window{3, 1, 1, 1, 1}};
  const Box x(Shape{{'N', 4}, {'C', 32}, {'H', 16}, {'W', 20}}), w(Shape{{'F', 32}, {'C', 32}, {'H', 3}, {'W', 3}});
  const ConvProblem right(ConvPass::forward, windows, x, w, x, false);
  const auto refused = [](const ConvProblem& problem) {
    EXPECT_THROW(plans(problem, DType::bf16), Error) << problem.print();
  };
  ConvProblem wrong = right;
  wrong.sides[1].out += 1;
  refused(wrong);
  wrong = right;
  wrong.sides[2].pad_lo = -1;
  refused(wrong);
  wrong = right;
  wrong.channels = 33;
  wrong.groups = 2;
  refused(wrong);
}

}  // namespace
}  // namespace partita::cuda::conv_plan_test
