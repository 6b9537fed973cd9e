// Every built-in model at a reduced size under every strategy in examples/strategies/MODEL-*.toml: it trains to the
// same result as on one rank, and moves the predicted bytes.
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "src/comm/threads/threads.hpp"
#include "test/support/master.hpp"
#include "test/support/source_folder.hpp"

#include <gtest/gtest.h>

#include <filesystem>

namespace partita::test::builtin_test {
namespace {

namespace fs = std::filesystem;

fs::path strategies() { return source_folder() / "examples" / "strategies"; }

struct Reduced {
  ModelSize size;
  Index batch;
};

/// The smallest extents that leave some positions to the last layers, and few channels. Odd if the model allows it.
const std::map<std::string, Reduced>& reduced() {
  static const std::map<std::string, Reduced> sizes{
      {"alexnet", {{.extent = 71, .classes = 5, .width = 0.03}, 5}},
      {"bert",
       {{.transformer = {.layers = 2, .hidden = 12, .heads = 3, .sequence = 5, .vocabulary = 11, .dropout = 0.2}}, 5}},
      {"cosmoflow", {{.extent = 37, .width = 0.06}, 3}},
      {"dlrm", {{.width = 0.03, .tables = {.tables = 5, .rows = 7, .features = 3, .bag = 2}}, 5}},
      {"fashion-cnn", {{.extent = 15, .width = 0.1}, 5}},
      {"googlenet", {{.extent = 67, .classes = 5, .width = 0.04}, 5}},
      {"gpt", {{.transformer = {.layers = 4, .hidden = 12, .heads = 3, .sequence = 5, .vocabulary = 11}}, 5}},
      {"gpt-experts",
       {{.transformer = {.layers = 2,
                         .hidden = 12,
                         .heads = 3,
                         .sequence = 7,
                         .vocabulary = 11,
                         .experts = {.experts = 8, .chosen = 2, .capacity = 1, .balance = 0.1}}},
        5}},
      {"lenet5", {{.width = 0.5}, 3}},
      {"mesh-tangling", {{.extent = 193, .channels = 3, .width = 0.03}, 2}},
      {"mlp", {{.extent = 5, .classes = 7, .widths = {13, 11}}, 5}},
      {"resnet18", {{.extent = 67, .classes = 5, .width = 0.05}, 5}},
      {"resnet50", {{.extent = 67, .classes = 5, .width = 0.03}, 5}},
      {"unet3d", {{.extent = 8, .width = 0.07}, 2}},
      {"vgg16", {{.extent = 37, .classes = 5, .width = 0.03}, 3}},
      {"vit", {{.extent = 15, .classes = 5, .transformer = {.layers = 2, .hidden = 12, .heads = 3, .patch = 5}}, 3}},
  };
  return sizes;
}

/// Returns the model whose name begins the file's name.
std::string model_of(const fs::path& file) {
  std::string found;
  for (const auto& [name, size] : reduced())
    if ((file.stem().string() + "-").starts_with(name + "-") && name.size() > found.size()) found = name;
  return found;
}

class Shipped : public testing::TestWithParam<fs::path> {};

TEST_P(Shipped, TrainsAsOneRankDoes) {
  const std::string name = model_of(GetParam());
  const auto& [size, batch] = reduced().at(name);
  RandomCase drawn(1);
  drawn.model = builtin_model(name == "gpt-experts" ? "gpt" : name, size);
  drawn.strategy = Strategy::load(GetParam().string());
  drawn.batch = batch;
  drawn.optimizer = {.rate = 0.01};
  const SerialResult serial = run_serially(drawn);
  const Plan plan = bind(drawn.model, drawn.strategy, workload_of(drawn));
  std::vector<RankResult> ranks(static_cast<std::size_t>(plan.ranks()));
  run_threads(plan.ranks(),
              [&](Communicator& comm) { ranks[comm.rank()] = run_rank(drawn, drawn.strategy, comm, true); });
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    static_cast<void>(expect_near_serial(drawn, ranks[rank], serial));
    expect_predicted(plan, rank, ranks[rank]);
  }
}

std::vector<fs::path> files() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(strategies()))
    if (!model_of(entry.path()).empty()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

INSTANTIATE_TEST_SUITE_P(Models, Shipped, testing::ValuesIn(files()), [](const auto& file) {
  std::string name = file.param.stem().string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
});

TEST(Builtin, EveryModelHasAStrategyAndAReducedSize) {
  for (const auto& name : builtin_models()) {
    if (name == "gpt2-small" || name == "gpt-22b" || name == "gpt-175b") continue;  // gpt of other sizes
    EXPECT_TRUE(reduced().count(name) > 0) << name;
    const auto all = files();
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const auto& file) { return model_of(file) == name; })) << name;
  }
}

}  // namespace
}  // namespace partita::test::builtin_test
