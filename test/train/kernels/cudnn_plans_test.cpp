// cuDNN has an engine for the convolutions of the built-in models, whole and cut by every shipped strategy.
// PARTITA_LONG=1 asks for all of them; else for some.
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/train/kernels/kernel.hpp"
#include "test/support/cases.hpp"
#include "test/support/h100.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

namespace partita::test::cudnn_plans_test {
namespace {

/// A model at its full size, and the samples of a step.
struct Subject {
  std::string name;
  Index batch;
};
const std::vector<Subject> subjects{
    {"resnet50", 32}, {"vgg16", 32}, {"unet3d", 4}, {"cosmoflow", 4}, {"mesh-tangling", 4}};

/// The convolutions of all ranks that differ, by their texts.
std::map<std::string, ConvProblem> problems(const Model& model, const Strategy& strategy, Index batch, DType dtype) {
  std::map<std::string, ConvProblem> all;
  const Plan plan = bind(model, strategy, {.batch = batch, .dtype = dtype, .optimizer = {}});
  for (std::size_t i = 0; i < plan.layers.size(); ++i)
    for (int rank = 0; rank < plan.grid_of(static_cast<int>(i)).size(); ++rank)
      for (const bool ahead : {false, true})
        for (const ConvProblem& problem :
             make_kernel(plan.layers[i], rank)->problems(true, ahead, plan.layers[i].next_activation.has_value()))
          all.emplace(problem.print(), problem);
  return all;
}

/// Returns the problems that no engine can run, each `step`th asked for.
std::vector<std::string> refused(const std::map<std::string, ConvProblem>& all, DType dtype, std::size_t step) {
  std::vector<std::string> texts;
  std::size_t at = 0;
  for (const auto& [text, problem] : all) {
    if (at++ % step != 0) continue;
    ConvProblem of = problem;
    of.with_bias = of.then = 0;  // else they are computed afterwards
    const cuda::EngineLimits limits{.tf32 = false, .workspace = Index{256} << 20};
    if (!cuda::conv_plan(cuda::dense_call(of, dtype), h100(), limits, "")) texts.push_back(text);
  }
  return texts;
}

TEST(CudnnPlans, NoWholeConvolutionIsRefused) {
  for (const auto& [name, batch] : subjects)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto all = problems(builtin_model(name, {}), Strategy(), batch, dtype);
      EXPECT_GE(all.size(), 9U) << name;
      for (const auto& text : refused(all, dtype, lengthy() ? 1 : 9))
        ADD_FAILURE() << name << ", " << partita::name(dtype) << ": " << text;
    }
}

TEST(CudnnPlans, FewCutConvolutionsAreRefused) {
  std::size_t asked = 0, none = 0;
  for (const auto& [name, batch] : subjects)
    for (const auto& entry : std::filesystem::directory_iterator(source_folder() / "examples/strategies")) {
      if (!entry.path().filename().string().starts_with(name + "-")) continue;
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const auto all = problems(builtin_model(name, {}), Strategy::load(entry.path().string()), batch, dtype);
        const std::size_t step = lengthy() ? 1 : 9;
        asked += (all.size() + step - 1) / step;
        for (const auto& text : refused(all, dtype, step)) {
          ++none;
          fmt::print("no engine: {}, {}: {}\n", entry.path().filename().string(), partita::name(dtype), text);
        }
      }
    }
  EXPECT_GE(asked, 50U);
  EXPECT_LE(none * 50, asked) << none << " of " << asked;
}

}  // namespace
}  // namespace partita::test::cudnn_plans_test
