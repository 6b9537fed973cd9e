// Products that a strategy leaves open get the algorithms that are fastest on the machine.
#include "partita/strategies/planner/choose_products.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/plan/bind.hpp"

#include "partita/base/error.hpp"
#include "test/strategies/cost/priced.hpp"
#include "test/support/cases.hpp"
#include "test/support/random_case.hpp"

#include <algorithm>

namespace partita::test::choose_products_test {
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
  const Strategy chosen = choose_products(model, open, workload, dgx_h100()).strategy;
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
  const Strategy near = choose_products(model, open, workload, dgx_h100()).strategy,
                 far = choose_products(model, open, workload, slow).strategy;
  EXPECT_NE(rules_of(near), rules_of(far));
  EXPECT_LE(seconds(model, far, workload, slow), seconds(model, near, workload, slow));
  EXPECT_LE(seconds(model, near, workload, dgx_h100()), seconds(model, far, workload, dgx_h100()));
}

TEST(ChooseProducts, LeavesWhatTheStrategySays) {
  const Model model = feed_forward();
  const Workload workload{.batch = 64, .optimizer = {}};
  Strategy given = all_as("c=8", "N C@c");
  given.layer("fc*", {.algorithm = Algorithm::summa_c});
  EXPECT_EQ(choose_products(model, given, workload, dgx_h100()).strategy.print(), given.print());
  const Strategy serial;
  EXPECT_EQ(choose_products(model, serial, workload, dgx_h100()).strategy.print(), serial.print());
}

// A strategy of samples alone asks for whole weights on every rank, though dividing them could save sums.
TEST(ChooseProducts, DividesNoWeightsWhereOnlySamplesAreCut) {
  const Strategy samples = all_as("data=64", "N@data");
  EXPECT_TRUE(choose_products(feed_forward(), samples, {.batch = 64, .optimizer = {}}, dgx_h100()).choices.empty());
}

/// The seconds of a step with each layout of two axes for the weights of each layer that `match` names.
double fastest_by_hand(const Model& model, const Strategy& open, const std::string& match, const Workload& workload,
                       const Machine& machine) {
  double least = seconds(model, open, workload, machine);
  for (const char* weights : {"F@c", "C@c", "F@data", "C@data", "F@c C@data", "F@data C@c", "F@(c,data)", "F@(data,c)",
                              "C@(c,data)", "C@(data,c)"}) {
    Strategy tried = open;
    tried.layer(match, {.weights = weights});
    try {
      least = std::min(least, seconds(model, tried, workload, machine));
    } catch (const Error&) {  // convolutions are not cut over axes of samples
      continue;
    }
  }
  return least;
}

// Weights that are divided among ranks with other samples need no sum of gradients. Here F@data is the fastest layout
// of fc1, which counting words alone does not find.
TEST(ChooseProducts, IsAsFastAsEveryLayoutOfWeights) {
  const Model model =
      builtin_model("mlp", {.extent = 1, .channels = 4096, .classes = 4096, .widths = {4096, 4096, 4096}});
  const Workload workload{.batch = 2048, .optimizer = {}};
  const Strategy open = all_as("data=8 c=8", "N@data C@c");
  const auto [chosen, choices] = choose_products(model, open, workload, dgx_h100());
  const double after = seconds(model, chosen, workload, dgx_h100());
  EXPECT_LE(after, fastest_by_hand(model, open, "fc1", workload, dgx_h100()) * (1 + 1e-9)) << rules_of(chosen);
  EXPECT_LE(after, fastest_by_hand(model, open, "fc*", workload, dgx_h100()) * (1 + 1e-9)) << rules_of(chosen);
  ASSERT_FALSE(choices.empty());
  EXPECT_EQ(choices.front().before, seconds(model, open, workload, dgx_h100()));
  EXPECT_EQ(choices.back().after, after);
  EXPECT_NE(bind(model, chosen, workload).hash(), bind(model, open, workload).hash());
}

// Without a machine, a convolution takes the way with the fewest operations and then the fewest words.
TEST(ChooseProducts, ChoosesForConvolutionsToo) {
  const Model model = builtin_model("vgg16", {.extent = 32, .classes = 10});
  const Workload workload{.batch = 64, .optimizer = {}};
  const Strategy open = all_as("data=8 c=8", "N@data C@c");
  const auto [chosen, choices] = choose_products(model, open, workload, dgx_h100());
  EXPECT_LE(seconds(model, chosen, workload, dgx_h100()),
            fastest_by_hand(model, open, "conv*", workload, dgx_h100()) * (1 + 1e-9))
      << rules_of(chosen);
  const auto of_convolution = [](const ProductChoice& choice) { return choice.layers.front().starts_with("conv"); };
  EXPECT_TRUE(std::any_of(choices.begin(), choices.end(), of_convolution)) << rules_of(chosen);
}

// Two ranks, and eight heads of queries for each of keys: a causal ring moves less than an all-to-all, but its last
// rank computes 1.5 times as much.
TEST(ChooseProducts, ChoosesForAttentionToo) {
  Model m("attention");
  Value t = m.linear("qkv", m.input("in", {.channels = 16, .length = 512}), {.features = 320, .per_place = true});
  t = m.attention("attention", t, {.heads = 16, .groups = 2, .causal = true});
  m.softmax_cross_entropy("loss", t);
  const Workload workload{.batch = 4, .optimizer = {}};
  const Strategy open = all_as("l=2", "L@l");
  Machine links = dgx_h100(), cores = dgx_h100();
  for (Level& level : links.levels) level.bandwidth = {1e7, ""};
  cores.peaks.clear();
  cores.arithmetic = {1e9, ""};
  const auto named = [&](Algorithm algorithm) { return Strategy(open).layer("attention", {.algorithm = algorithm}); };
  for (const auto& [machine, best] : {std::pair(links, Algorithm::ring), std::pair(cores, Algorithm::all_to_all)}) {
    const Strategy chosen = choose_products(m, open, workload, machine).strategy;
    EXPECT_EQ(bind(m, chosen, workload).layer("attention")->at.algorithm, best);
    for (const Algorithm each : {Algorithm::ring, Algorithm::all_to_all})
      EXPECT_LE(seconds(m, chosen, workload, machine), seconds(m, named(each), workload, machine)) << name(each);
  }
}

TEST(ChooseProducts, KeepsTheMemoryLimit) {
  const Model model =
      builtin_model("mlp", {.extent = 1, .channels = 4096, .classes = 4096, .widths = {4096, 4096, 4096}});
  const Workload workload{.batch = 2048, .optimizer = {}};
  const Strategy open = all_as("data=8 c=8", "N@data C@c");
  const auto held = [&](const Strategy& strategy) {
    return estimate(bind(model, strategy, workload), dgx_h100()).memory.total;
  };
  const Strategy free = choose_products(model, open, workload, dgx_h100()).strategy;
  for (const Index limit : {held(free), held(free) - 1, held(open), Index{1}}) {
    const Strategy chosen = choose_products(model, open, workload, dgx_h100(), {}, limit).strategy;
    EXPECT_LE(held(chosen), std::max(limit, held(open)));
  }
}

TEST(ChooseProducts, NeverMakesAPlanSlowerAndLeavesNothingToChoose) {
  for (std::uint64_t seed = 7000; seed < 7000 + cases(60) && !HasFailure(); ++seed) {
    const RandomCase drawn(seed);
    const Workload workload{.batch = drawn.batch, .dtype = DType::f32, .optimizer = drawn.optimizer};
    const Machine machine = machine_of_racks(2, 2, 1);
    const Strategy chosen = choose_products(drawn.model, drawn.strategy, workload, machine).strategy;
    EXPECT_LE(seconds(drawn.model, chosen, workload, machine),
              seconds(drawn.model, drawn.strategy, workload, machine) * (1 + 1e-12))
        << drawn.print();
    EXPECT_EQ(chosen.print(), choose_products(drawn.model, drawn.strategy, workload, machine).strategy.print());
    EXPECT_TRUE(choose_products(drawn.model, chosen, workload, machine).choices.empty()) << drawn.print();
  }
}

}  // namespace
}  // namespace partita::test::choose_products_test
