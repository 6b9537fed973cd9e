// cuDNN has an engine for the convolutions of the built-in models, whole and cut by every shipped strategy.
// PARTITA_LONG=1 asks for all of them; else for some.
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/train/kernels/kernel.hpp"
#include "src/backend/gpu/cuda/libraries/conv_plan.hpp"
#include "test/support/cases.hpp"
#include "test/support/h100.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>

namespace partita::test::cudnn_plans_test {
namespace {

/// A model at its full size, and the samples of a step.
struct Subject {
  std::string name;
  Index batch;
};
const std::vector<Subject> subjects{
    {"resnet50", 256}, {"vgg16", 32}, {"unet3d", 4}, {"cosmoflow", 4}, {"mesh-tangling", 4}};

using Extents = std::array<Index, 3>;  // of the dimensions D H W; 1 for those that a tensor lacks

/// Returns the extents of a box with the dimensions N C and spatial ones.
Extents spatial_extents(const Box& box) {
  Extents all{1, 1, 1};
  for (int d = 2; d < box.dims(); ++d) all[3 + d - box.dims()] = box[d].extent();
  return all;
}

/// Returns the call on dense tensors x and y of these extents, of which the problem may need a part: a layer's input
/// and its halo lie in one tensor, and so do outputs that are computed in pieces.
cuda::ConvCall call_within(const ConvProblem& problem, DType dtype, const Extents& x, const Extents& y) {
  cuda::ConvCall call = cuda::dense_call(problem, dtype);
  const auto fill = [](std::array<Index, 4>& strides, const Extents& extents, Index channels) {
    strides[3] = channels;
    for (std::size_t d = 3; d > 0; --d) strides[d - 1] = strides[d] * extents[d - 1];
  };
  fill(call.x_strides, x, problem.channels);
  fill(call.y_strides, y, problem.filters);
  // A part may begin at any position.
  for (const Index channels : {problem.channels, problem.filters})
    call.alignment = std::gcd(call.alignment, channels * size_of(dtype));
  return call;
}

/// The convolutions of all ranks that differ, in their texts or in where their tensors lie.
std::map<std::string, cuda::ConvCall> calls(const Model& model, const Strategy& strategy, Index batch, DType dtype) {
  std::map<std::string, cuda::ConvCall> all;
  const Plan plan = bind(model, strategy, {.batch = batch, .dtype = dtype, .optimizer = {}});
  for (std::size_t i = 0; i < plan.layers.size(); ++i)
    for (int rank = 0; rank < plan.grid_of(static_cast<int>(i)).size(); ++rank)
      for (const bool ahead : {false, true})
        for (ConvProblem problem :
             make_kernel(plan.layers[i], rank)->problems(true, ahead, plan.layers[i].next_activation.has_value())) {
          if (problem.empty()) continue;
          problem.with_bias = problem.then = 0;  // else they are computed afterwards
          const OperatorLayouts& at = plan.layers[i]->at;
          Extents x = spatial_extents(at.x_halo ? at.x_halo->needed(rank) : at.x[0].owned(rank));
          Extents y = spatial_extents(problem.pass != ConvPass::forward && at.dy_halo ? at.dy_halo->needed(rank)
                                                                                      : at.y.owned(rank));
          for (std::size_t d = 0; d < 3; ++d) {  // transposed convolutions read y, and write x
            x[d] = std::max(x[d], problem.sides[d].in);
            y[d] = std::max(y[d], problem.sides[d].out);
          }
          const cuda::ConvCall call = call_within(problem, dtype, x, y);
          all.emplace(fmt::format("{} in {} of {}", problem.print(), fmt::join(x, "x"), fmt::join(y, "x")), call);
        }
  return all;
}

const cuda::EngineLimits limits{.tf32 = false, .workspace = Index{256} << 20};

/// Calls visit(text, plan) for each `step`th call, with the first plan, or none if no engine can run the call.
template <class Visit>
std::size_t each_plan(const std::map<std::string, cuda::ConvCall>& all, std::size_t step, Visit&& visit) {
  std::size_t at = 0;
  for (const auto& [text, call] : all)
    if (at++ % step == 0) visit(text, call.problem, cuda::conv_plan(call, h100(), limits, ""));
  return (all.size() + step - 1) / step;
}

std::size_t step() { return lengthy() ? 1 : 9; }

/// Returns why no engine for bf16 computes a problem on tensor cores; "" if one should.
std::string why_without_tensor_cores(const ConvProblem& problem) {
  if (problem.channels / problem.groups % 8 != 0) return "input channels are no multiple of 8, which is 16 bytes";
  if (problem.filters / problem.groups % 8 != 0) return "filters are no multiple of 8, which is 16 bytes";
  return "";
}

TEST(CudnnPlans, NoWholeConvolutionIsRefused) {
  for (const auto& [name, batch] : subjects)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(fmt::format("{}, {}", name, partita::name(dtype)));
      const auto all = calls(builtin_model(name, {}), Strategy(), batch, dtype);
      EXPECT_GE(all.size(), 9U);
      each_plan(all, step(),
                [](const std::string& text, const ConvProblem&, const auto& plan) { EXPECT_TRUE(plan) << text; });
    }
}

/// The plans of a model as a whole and under every shipped strategy.
template <class Visit>
std::size_t each_shipped(const Subject& subject, DType dtype, Visit&& visit) {
  const Model model = builtin_model(subject.name, {});
  std::size_t asked = each_plan(calls(model, Strategy(), subject.batch, dtype), step(),
                                [&](const auto&... each) { visit("whole", each...); });
  for (const auto& entry : std::filesystem::directory_iterator(source_folder() / "examples/strategies"))
    if (const std::string file = entry.path().filename().string(); file.starts_with(subject.name + "-"))
      asked += each_plan(calls(model, Strategy::load(entry.path().string()), subject.batch, dtype), step(),
                         [&](const auto&... each) { visit(file, each...); });
  return asked;
}

TEST(CudnnPlans, FewConvolutionsAreRefused) {
  std::size_t asked = 0, none = 0;
  for (const Subject& subject : subjects)
    for (const DType dtype : {DType::f32, DType::bf16})
      asked += each_shipped(
          subject, dtype, [&](const std::string& where, const std::string& text, const ConvProblem&, const auto& plan) {
            if (plan) return;
            ++none;
            fmt::print("no engine: {}, {}: {}\n", where, partita::name(dtype), text);
          });
  EXPECT_GE(asked, 50U);
  EXPECT_LE(none * 50, asked) << none << " of " << asked;
}

// The first plan of bf16, with the strides that training uses.
TEST(CudnnPlans, ConvolutionsOfBf16RunOnTensorCores) {
  std::map<std::string, std::size_t> without;  // by reason
  std::size_t checked = 0;
  for (const Subject& subject : subjects)
    each_shipped(subject, DType::bf16,
                 [&](const std::string& where, const std::string& text, const ConvProblem& problem, const auto& plan) {
                   if (!plan) return;
                   ++checked;
                   if (plan->tensor_cores()) return;
                   const std::string why = why_without_tensor_cores(problem);
                   EXPECT_NE(why, "") << where << ": " << plan->name() << " runs " << text;
                   ++without[why];
                 });
  EXPECT_GE(checked, 50U);
  EXPECT_TRUE(!lengthy() || !without.empty()) << "images have 3 channels";
  for (const auto& [why, count] : without) fmt::print("{} of {} without tensor cores: {}\n", count, checked, why);
}

}  // namespace
}  // namespace partita::test::cudnn_plans_test
