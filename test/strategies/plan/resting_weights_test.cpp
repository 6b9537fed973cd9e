// Which weights rest in shards, how these are cut, and what moves for them.
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/traffic.hpp"
#include "strategies/cost/cost_terms.hpp"
#include "test/strategies/cost/priced.hpp"
#include "test/support/error_of.hpp"

namespace partita::test::resting_weights_test {
namespace {

/// fashion_cnn on 2 x 2 ranks, bound with one rule for all layers and more rules after it.
struct Bound {
  Bound(const char* all, const std::vector<std::pair<std::string, LayerRule>>& rules) {
    Strategy strategy("data=2 y=2");
    strategy.layer("*", {.output = all});
    for (const auto& [match, rule] : rules) strategy.layer(match, rule);
    plan = bind(fashion_cnn(), strategy, {.batch = 6, .optimizer = {}});
  }
  const LayerPlan& operator[](std::string_view name) const { return plan.layer(name); }
  /// Returns role and messages of each item of rank 0, e.g. "halo x 1, ...".
  std::string traffic(std::string_view name) const {
    const auto index = static_cast<int>(&plan.layer(name) - plan.layers.data());
    std::string text;
    for (const auto& item : layer_traffic(plan, index, 0))
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", item.role, item.traffic.messages);
    return text;
  }
  Plan plan;
};

}  // namespace

// Axes of samples and space do not cut a layer's channels, so weights are gathered over them.
TEST(RestingWeights, WeightsRestInShards) {
  const Bound b("N@data H@y", {{"conv1", {.weights = "F@(y,data)"}}, {"bn1", {.weights = "C@data"}}});
  const auto rest = [&](const char* layer, std::size_t weight = 0) { return b[layer]->rest[weight]; };
  EXPECT_EQ(b["conv1"]->at.w[0].print(), "F C H W") << "kernels need it whole";
  EXPECT_EQ(rest("conv1").w.print(), "F@(y,data) C H W");
  EXPECT_EQ(print(rest("conv1").gather), "all_gather(data,y)");
  EXPECT_EQ(print(rest("conv1").scatter), "reduce_scatter(data,y)");
  EXPECT_EQ(rest("bn1", 1).w.print(), "C@data") << "the shift follows the scale";
  EXPECT_EQ(rest("bn1", 1).dw.print(), "C@data") << "its gradients are sums over all ranks already";
  EXPECT_EQ(rest("bn1", 2).w.print(), "C") << "running statistics are not trained";
  EXPECT_FALSE(b["conv2"].gathers_weights());
  EXPECT_EQ(b.traffic("conv1"), "gathered w 1, halo x 1, scattered dw 1") << "nothing before it needs its dx";
  const Bound columns("N@data", {{"conv1", {.output = "N@data C@y", .weights = "F@(y,data)"}}});
  EXPECT_EQ(columns["conv1"]->at.w[0].print(), "F@y C H W") << "y cuts the filters that a rank computes";
  const Bound samples("N@data H@y", {{"conv1", {.weights = "F@data"}}});
  EXPECT_EQ(samples["conv1"]->rest[0].dw.print(), "F@data C H W sum@y") << "the rest of the sum is taken in a bucket";
  expect_error(
      [] {
        Bound("N@data", {{"conv1", {.output = "N@data C@y", .weights = "F@(data,y)"}}});
      },
      {"conv1", "name 'y' before"});
}

// A linear layer's products send panels where an algorithm is named, or where samples cut the weights' inputs.
TEST(RestingWeights, LinearLayersGatherOrSendPanels) {
  const Bound gathers("N@data", {{"fc1", {.weights = "F@data"}}});
  EXPECT_TRUE(gathers["fc1"].gathers_weights());
  EXPECT_EQ(gathers["fc1"]->rest[1].w.print(), "F@data") << "the bias follows";
  EXPECT_FALSE(Bound("N@data", {{"fc1", {.weights = "C@data"}}})["fc1"].gathers_weights());
  EXPECT_FALSE(
      Bound("N@data", {{"fc1", {.weights = "F@data", .algorithm = Algorithm::summa_c}}})["fc1"].gathers_weights());
}

TEST(RestingWeights, AreAKeyOfTheFile) {
  const Strategy read = Strategy::parse("grid = \"data=2\"\nweights = \"sharded\"\n", "s.toml");
  EXPECT_TRUE(read.shards_weights());
  EXPECT_EQ(Strategy::parse(read.print(), "s.toml").print(), read.print());
  EXPECT_FALSE(Strategy::parse("weights = \"replicated\"", "s.toml").shards_weights());
  expect_error([] { Strategy::parse("weights = \"halved\"", "s.toml"); },
               {"s.toml, line 1", "there is no weights = \"halved\""});
}

// "b" is gathered in forward and in backward, and its gradient is scattered. Where links work by themselves, this hides
// behind its kernels.
TEST(RestingWeights, ArePriced) {
  Strategy strategy = all_as("data=2", "N@data");
  const auto cost_of_b = [&](double overlap) {
    return estimate(bound(two_convolutions(), strategy, 4), round_machine(overlap)).layers[2];
  };
  const auto collective = [](const LayerCost& cost) {
    return cost.forward.collective + cost.backward_data.collective + cost.backward_filter.collective;
  };
  const LayerCost replicas = cost_of_b(0);
  EXPECT_EQ(collective(replicas), 0);
  strategy.shard_weights();
  const LayerCost shards = cost_of_b(0), hidden = cost_of_b(1);
  for (const Pass pass : {Pass::forward, Pass::backward_data, Pass::backward_filter})
    EXPECT_GT(cost_of(shards, pass).collective, 1 * us) << "a weight and a bias, at least a message each";
  EXPECT_EQ(collective(hidden), 0) << "the kernels take longer";
  EXPECT_EQ(hidden.forward.hidden, shards.forward.collective);
}

}  // namespace partita::test::resting_weights_test
