// Products that a strategy leaves open get the algorithms that are fastest on the machine.
#include "partita/strategies/planner/choose_products.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/plan/bind.hpp"

#include "test/strategies/cost/priced.hpp"
#include "test/support/cases.hpp"
#include "test/support/random_case.hpp"

#include <algorithm>

namespace partita::test {
namespace {

/// h, 4h, h, as in the feed-forward part of a transformer.
Model feed_forward() {
  return builtin_model("mlp", {.extent = 1, .channels = 1024, .classes = 16, .widths = {4096, 1024}});
}

double seconds(const Model& model, const Strategy& strategy, const Workload& workload, const Machine& machine) {
  return estimate(bind(model, strategy, workload), machine).seconds;
}

std::string rules_of(const Strategy& strategy) {
  std::string text;
  for (const auto& rule : strategy.rules())
    text += fmt::format("{}: {}{} ", rule.match, rule.rule.algorithm ? rule.rule.algorithm->text() : "",
                        rule.rule.weights ? " " + *rule.rule.weights : "");
  return text;
}

TEST(ChooseProducts, IsAsFastAsTheRowParallelProductByHand) {
  const Model model = feed_forward();
  const Workload workload{.batch = 64, .optimizer = {}};
  const Strategy open = all_as("c=8", "N C@c");
  Strategy rows = open;
  rows.layer("fc2", {.weights = "F C@c"});
  const Strategy chosen = choose_products(model, open, workload, dgx_h100());
  const double before = seconds(model, open, workload, dgx_h100()),
               after = seconds(model, chosen, workload, dgx_h100());
  EXPECT_LE(after, seconds(model, rows, workload, dgx_h100()) * (1 + 1e-9)) << rules_of(chosen);
  EXPECT_LT(after, before * 0.999) << rules_of(chosen);
}

// Where bytes are expensive, the algorithm that moves the fewest is taken, whatever messages it has.
TEST(ChooseProducts, DependsOnTheMachine) {
  const Model model = feed_forward();
  const Workload workload{.batch = 64, .optimizer = {}};
  const Strategy open = all_as("c=8", "N C@c");
  Machine slow = dgx_h100();
  for (Level& level : slow.levels) level.bandwidth = {1e7, ""};
  const Strategy near = choose_products(model, open, workload, dgx_h100()),
                 far = choose_products(model, open, workload, slow);
  EXPECT_NE(rules_of(near), rules_of(far));
  EXPECT_LE(seconds(model, far, workload, slow), seconds(model, near, workload, slow));
  EXPECT_LE(seconds(model, near, workload, dgx_h100()), seconds(model, far, workload, dgx_h100()));
}

TEST(ChooseProducts, LeavesWhatTheStrategySays) {
  const Model model = feed_forward();
  const Workload workload{.batch = 64, .optimizer = {}};
  Strategy given = all_as("c=8", "N C@c");
  given.layer("fc*", {.algorithm = Algorithm::summa_c});
  EXPECT_EQ(choose_products(model, given, workload, dgx_h100()).rules().size(), given.rules().size());
  const Strategy serial;
  EXPECT_EQ(choose_products(model, serial, workload, dgx_h100()).rules().size(), 0U);
}

// A strategy of samples alone asks for whole weights on every rank, though dividing them could save sums.
TEST(ChooseProducts, DividesNoWeightsWhereOnlySamplesAreCut) {
  const Strategy samples = all_as("data=64", "N@data");
  EXPECT_EQ(choose_products(feed_forward(), samples, {.batch = 64, .optimizer = {}}, dgx_h100()).rules().size(), 1U);
}

TEST(ChooseProducts, NeverMakesAPlanSlowerAndAlwaysChoosesTheSame) {
  for (std::uint64_t seed = 7000; seed < 7000 + cases(60) && !HasFailure(); ++seed) {
    const RandomCase drawn(seed);
    const Workload workload{.batch = drawn.batch, .dtype = DType::f32, .optimizer = drawn.optimizer};
    const Machine machine = machine_of_racks(2, 2, 1);
    const Strategy chosen = choose_products(drawn.model, drawn.strategy, workload, machine);
    EXPECT_LE(seconds(drawn.model, chosen, workload, machine),
              seconds(drawn.model, drawn.strategy, workload, machine) * (1 + 1e-12))
        << drawn.print();
    EXPECT_EQ(chosen.print(), choose_products(drawn.model, drawn.strategy, workload, machine).print());
  }
}

}  // namespace
}  // namespace partita::test
