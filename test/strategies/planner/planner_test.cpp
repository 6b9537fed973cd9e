// The planner finds the minimum: exactly over a graph of choices; for whole strategies, compared with all mixtures of a
// small model and with the strategies in examples/.
#include "partita/strategies/planner/planner.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "strategies/cost/local_work.hpp"

#include "partita/base/philox.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/planner/stage_partition.hpp"
#include "strategies/planner/choice_graph.hpp"
#include "strategies/planner/layout_reasons.hpp"
#include "strategies/planner/strategy_kind.hpp"
#include "test/strategies/cost/priced.hpp"
#include "test/strategies/planner/variants.hpp"
#include "test/support/cases.hpp"
#include "test/support/error_of.hpp"
#include "test/support/source_folder.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <numeric>
#include <set>

namespace partita::test::planner_test {
namespace {

/// A random graph: a chain with some edges that skip nodes, so that not all nodes can be eliminated.
ChoiceGraph random_graph(std::uint64_t seed) {
  const Random random(seed, 1);
  Index at = 0;
  const auto draw = [&](int lo, int hi) {
    return lo + static_cast<int>(random.bits(at++) % static_cast<std::uint32_t>(hi - lo + 1));
  };
  const auto cost = [&] { return 0.01 * draw(0, 1000); };
  ChoiceGraph graph;
  graph.nodes.resize(static_cast<std::size_t>(draw(1, 7)));
  for (auto& node : graph.nodes)
    for (int way = draw(1, 3); way-- > 0;) node.push_back(cost());
  const auto connect = [&](int from, int to) {
    ChoiceGraph::Edge edge{from, to, {}};
    for (std::size_t i = 0; i < graph.nodes[from].size(); ++i) {
      auto& row = edge.costs.emplace_back();
      for (std::size_t j = 0; j < graph.nodes[to].size(); ++j) row.push_back(cost());
    }
    graph.edges.push_back(edge);
  };
  for (int to = 1; to < static_cast<int>(graph.nodes.size()); ++to)
    for (int from = to; from-- > 0;)
      if (from == to - 1 || draw(0, 2) == 0) connect(from, to);
  return graph;
}

double cost_of(const ChoiceGraph& graph, const std::vector<int>& ways) {
  const auto costs = costs_of(graph, ways);
  return std::accumulate(costs.begin(), costs.end(), 0.0);
}

/// Counts through all choices. Returns false after the last.
bool next(std::vector<int>& ways, const std::vector<std::size_t>& counts) {
  for (std::size_t i = 0; i < ways.size(); ++i) {
    if (++ways[i] < static_cast<int>(counts[i])) return true;
    ways[i] = 0;
  }
  return false;
}

TEST(ChoiceGraph, EqualsTheBestOfAllChoices) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const ChoiceGraph graph = random_graph(seed);
    std::vector<std::size_t> counts;
    for (const auto& node : graph.nodes) counts.push_back(node.size());
    std::vector<int> ways(counts.size(), 0);
    double least = std::numeric_limits<double>::infinity();
    do least = std::min(least, cost_of(graph, ways));
    while (next(ways, counts));
    const Choice choice = eliminate_choices(graph);
    EXPECT_NEAR(choice.cost, least, 1e-9) << "seed " << seed;
    EXPECT_NEAR(cost_of(graph, choice.chosen), least, 1e-9) << "seed " << seed;
  }
}

Model small() {
  Model m("small");
  auto t = m.input("in", {.channels = 4, .spatial = {16, 16}});
  t = m.conv("a", t, {.filters = 32, .kernel = 3, .padding = 1});
  t = m.conv("b", t, {.filters = 8, .kernel = 3, .stride = 2});
  t = m.linear("f", t, {.features = 512});
  m.softmax_cross_entropy("loss", m.linear("g", t, {.features = 10}));
  return m;
}

TEST(Planner, NoMixtureOfPatternsIsCheaper) {
  const Model model = small();
  const Workload workload{.batch = 8, .optimizer = {}};
  const Machine machine = default_machine();
  PlannerOptions options;
  options.ranks = 2;
  options.kinds.clear();
  const double found = plan_strategies(model, workload, machine, {}, options).front().cost.seconds;
  double least = std::numeric_limits<double>::infinity();
  struct Ways {
    std::string grid;
    std::vector<std::string> convolutions, products;
  };
  for (const auto& [grid, convolutions, products] : {Ways{"data=2", {"N@data", "C@data", ""}, {"N@data", "C@data", ""}},
                                                     Ways{"y=2", {"N H@y", "N@y", "C@y", ""}, {"N@y", "C@y", ""}},
                                                     Ways{"c=2", {"C@c", "N@c", ""}, {"C@c", "N@c", ""}}}) {
    std::vector<int> ways(4, 0);
    const std::vector<std::size_t> counts{convolutions.size(), convolutions.size(), products.size(), products.size()};
    do {
      Strategy strategy(grid);
      const auto rule = [&](const char* layer, const std::vector<std::string>& patterns, std::size_t number) {
        strategy.layer(layer, {.output = patterns[ways[number]]});
      };
      strategy.layer("in", {.output = convolutions[0]});
      rule("a", convolutions, 0);
      rule("b", convolutions, 1);
      rule("f", products, 2);
      rule("g", products, 3);
      least = std::min(least, estimate(bind(model, strategy, workload), machine).seconds);
    } while (next(ways, counts));
  }
  EXPECT_LE(found, 1.001 * least);
}

/// Returns the built-in model with the longest name that begins the file's name; "" if there is none.
std::string model_of(const std::filesystem::path& file) {
  std::string found;
  for (const auto& name : builtin_models())
    if (file.filename().string().starts_with(name + "-") && name.size() > found.size()) found = name;
  return found;
}

TEST(Planner, NeverWorseThanWhatShips) {
  const auto examples = source_folder() / "examples";
  const Machine machine = Machine::load((examples / "machines/dgx-a100.toml").string());
  const Workload workload{.batch = 32, .optimizer = {}};
  std::map<std::pair<std::string, int>, double> best;  // by model and ranks
  for (const auto& entry : std::filesystem::directory_iterator(examples / "strategies")) {
    const std::string name = model_of(entry.path());
    if (name.empty() || (short_run() && name != "fashion-cnn" && name != "mlp")) continue;
    const bool experts = entry.path().stem() == "gpt-experts";
    ModelSize size;
    if (experts) size.transformer.experts = {.experts = 8, .chosen = 2};
    const Model model = builtin_model(name, size);
    const Strategy strategy = Strategy::load(entry.path().string());
    PlannerOptions options;
    options.ranks = strategy.ranks();
    const auto [found, first] = best.try_emplace({experts ? "gpt-experts" : name, options.ranks}, 0);
    if (first) found->second = plan_strategies(model, workload, machine, {}, options).front().cost.seconds;
    EXPECT_LE(found->second, 1.0001 * estimate(bind(model, strategy, workload), machine).seconds) << entry.path();
  }
  EXPECT_GE(best.size(), short_run() ? 2 : 12);
}

// With one channel the first rank owns all of it; sending it to the others has a cost.
TEST(Planner, OneChannelIsNoBetterCutThanSamples) {
  const Machine machine = default_machine();
  for (const char* name : some<const char*>({"mlp", "lenet5", "fashion-cnn"})) {
    const Model model = builtin_model(name, {});
    const Workload workload{.batch = 4096, .optimizer = {}};
    Strategy samples("data=2");
    const double price = estimate(bind(model, samples.layer("*", {.output = "N@data"}), workload), machine).seconds;
    EXPECT_LE(plan_strategies(model, workload, machine, {}, {.ranks = 2}).front().cost.seconds, 1.0001 * price) << name;
  }
}

// Chimera idles less than the other kinds. With four stages of six layers, only chimera has few enough groups.
TEST(Planner, StagesMayHaveReplicas) {
  const auto stages = [](const char* name, const std::vector<ScheduleKind>& kinds) {
    std::set<int> counts;
    const Model model = name == std::string("small") ? small() : builtin_model(name, {});
    for (const auto& [strategy, cost, choices] : plan_strategies(
             model, {.batch = 8, .optimizer = {}}, default_machine(), {}, {.ranks = 4, .best = 64, .kinds = kinds}))
      if (strategy.schedule() == ScheduleKind::chimera) counts.insert(static_cast<int>(strategy.groups().size()));
    return counts;
  };
  using Kinds = std::vector<ScheduleKind>;
  for (const auto& [name, kinds] : some<std::pair<const char*, Kinds>>(
           {{"small", {ScheduleKind::zb_v, ScheduleKind::chimera}}, {"lenet5", PlannerOptions().kinds}}))
    EXPECT_EQ(stages(name, kinds), (std::set{2, 4})) << name;
}

TEST(Planner, WritesWhatItPriced) {
  const Model model = small();
  const Workload workload{.batch = 6, .optimizer = {}};
  PlannerOptions options;
  options.ranks = 4;
  for (const auto& [strategy, cost, choices] : plan_strategies(model, workload, default_machine(), {}, options)) {
    const Strategy read = Strategy::parse(strategy.print(), "plan.toml");
    EXPECT_EQ(read.ranks(), 4);
    EXPECT_DOUBLE_EQ(estimate(bind(model, read, workload), default_machine()).seconds, cost.seconds)
        << strategy.print();
  }
}

TEST(Planner, SaysWhatIsMissingWhereNothingFits) {
  PlannerOptions options;
  options.ranks = 2;
  options.memory_limit = 10000;
  const std::string error =
      error_of([&] { plan_strategies(small(), {.batch = 4, .optimizer = {}}, default_machine(), {}, options); });
  EXPECT_NE(error.find("does not fit 2 ranks with a batch of 4: of the"), std::string::npos) << error;
  EXPECT_NE(error.find("more than the limit of 9.8 KiB; use more ranks"), std::string::npos) << error;
  options.ranks = 0;
  EXPECT_EQ(error_of([&] { plan_strategies(small(), {.batch = 4, .optimizer = {}}, default_machine(), {}, options); }),
            "the number of ranks is 0; it must be 1 to 1048576");
  const auto refused = [](const PlannerOptions& asked) {
    return error_of([&] { plan_strategies(small(), {.batch = 4, .optimizer = {}}, default_machine(), {}, asked); });
  };
  EXPECT_EQ(refused({.best = 0}), "the number of strategies to find is 0; it must be 1 or more");
  EXPECT_EQ(refused({.examined = 0}), "the number of candidates to examine is 0; it must be 1 or more");
  for (const PlannerOptions& none :
       {PlannerOptions{.rounds = 0}, PlannerOptions{.most_split = 0}, PlannerOptions{.most_microbatches = 0}})
    EXPECT_EQ(refused(none),
              "a limit of the planner's rounds, ranks per block or microbatches is 0; it must be 1 or more");
}

// Channels in four groups over three ranks would split a group: the pattern is left out and reported once for all
// microbatches.
TEST(Planner, NamesThePatternsThatALayerCannotRunIn) {
  std::vector<LeftOut> all;
  PlannerOptions options;
  options.ranks = 3;
  options.left_out = [&](const LeftOut& pattern) { all.push_back(pattern); };
  static_cast<void>(plan_strategies(small(), {.batch = 6, .optimizer = {}}, default_machine(), {}, options));
  EXPECT_TRUE(all.empty());
  Model m("grouped");
  auto t = m.input("in", {.channels = 4, .spatial = {8, 8}});
  t = m.conv("g", t, {.filters = 8, .kernel = 3, .padding = 1, .groups = 4});
  m.softmax_cross_entropy("loss", m.linear("f", t, {.features = 4}));
  EXPECT_FALSE(plan_strategies(m, {.batch = 6, .optimizer = {}}, default_machine(), {}, options).empty());
  std::map<std::string, std::string> patterns;
  for (const auto& [grid, pattern, why, still_tried] : all) {
    EXPECT_TRUE(still_tried);
    EXPECT_TRUE(patterns.emplace(grid, pattern).second) << "once";
    EXPECT_NE(why.find("layer 'g' (conv): output"), std::string::npos) << why;
  }
  EXPECT_EQ(patterns, (std::map<std::string, std::string>{{"c=3", "C@c"}, {"y=3", "C@y"}}));
}

TEST(Planner, LooksAsFarAsItsOptionsSay) {
  PlannerOptions options;
  options.ranks = 2;
  options.most_microbatches = 1;
  options.most_split = 1;
  for (const auto& found : plan_strategies(small(), {.batch = 64, .optimizer = {}}, default_machine(), {}, options)) {
    const auto stages = static_cast<int>(found.strategy.grids().size());
    EXPECT_LE(found.strategy.microbatches(), stages) << "one per stage";
    EXPECT_EQ(found.strategy.grid().print(), stages == 2 ? "" : "data=2");
  }
  int examined = 0;
  PlannerOptions unfit{.ranks = 2, .memory_limit = 10000, .examined = 2, .rounds = 3};
  unfit.progress = [&](std::string_view what, int done, int) {
    if (what == "candidates examined") examined = done;
  };
  EXPECT_NE(error_of([&] { plan_strategies(small(), {.batch = 64, .optimizer = {}}, default_machine(), {}, unfit); }),
            "");
  EXPECT_EQ(examined, 6);
  const auto smallest = [&](int microbatches) {  // the smallest strategy tried, from the error
    unfit.most_microbatches = microbatches;
    return error_of([&] { plan_strategies(small(), {.batch = 64, .optimizer = {}}, default_machine(), {}, unfit); });
  };
  unfit.examined = 12;
  EXPECT_NE(smallest(1), smallest(8));
}

// These strategies were drawn by hand. They beat the plan when it chose products only at the end, shared an update only
// to save memory, and had the axis of samples first.
TEST(Planner, SharesUpdatesAndChoosesProductsForSpeed) {
  if (short_run()) GTEST_SKIP() << long_under_sanitizer;
  const Model model =
      builtin_model("mlp", {.extent = 1, .channels = 4096, .classes = 4096, .widths = {4096, 4096, 4096}});
  const Workload workload{.batch = 2048, .optimizer = {}};
  struct ByHand {
    std::string machine, grid, output;
    int stages, microbatches;
  };
  for (const auto& [name, grid, output, stages, microbatches] :
       {ByHand{"dgx-h100", "a=2 b=4", "C@a N@b", 4, 4}, ByHand{"abci", "a=2 b=4", "N@a C@b", 4, 4},
        ByHand{"frontier", "a=4 b=2", "C@a N@b", 4, 8}, ByHand{"perlmutter", "a=4 b=4", "C@a N@b", 2, 2}}) {
    const Machine machine = Machine::load((source_folder() / "examples/machines" / (name + ".toml")).string());
    Strategy strategy(grid);
    strategy.layer("*", {.output = output}).stages(stages).schedule("zb-h1", microbatches);
    strategy.optimizer_state(Strategy::OptimizerState::sharded);
    const Strategy placed = place_stages(model, strategy, workload, machine, {});
    const ChosenProducts chosen = choose_products(model, placed, workload, machine, {});
    const double by_hand = estimate(bind(model, chosen.strategy, workload), machine).seconds;
    const auto found = plan_strategies(model, workload, machine, {}, {.ranks = 32, .best = 1});
    EXPECT_LE(found.front().cost.seconds, by_hand) << name << "\n" << found.front().strategy.print();
  }
}

TEST(Planner, TheFastestOfEachKindAreChosenFirst) {
  const StrategyKind samples{.samples = true}, channels{.channels = true}, space{.space = true};
  const std::vector<KindTime> list{{space, 1.26}, {samples, 1.1}, {channels, 1.25}, {samples, 1}, {samples, 1.3}};
  using Places = std::vector<std::size_t>;
  EXPECT_EQ(fastest_of_kinds(list, 1), (Places{3}));
  EXPECT_EQ(fastest_of_kinds(list, 2), (Places{3, 2})) << "another kind up to 1.25 times the fastest";
  EXPECT_EQ(fastest_of_kinds(list, 3), (Places{3, 1, 2})) << "then more of a kind, and slower ones";
  EXPECT_EQ(fastest_of_kinds(list, 4), (Places{3, 1, 2, 0}));
  EXPECT_EQ(fastest_of_kinds(list, 9), (Places{3, 1, 2, 0, 4}));
  EXPECT_TRUE(fastest_of_kinds({}, 2).empty());
}

// Copies of a table forbid some partitions of two replicas, and some sharded states; the search goes on without these.
TEST(Planner, PlansModelsWithATiedTable) {
  const Model model = builtin_model(
      "gpt",
      {.transformer = {.layers = 4, .hidden = 64, .heads = 4, .sequence = 32, .vocabulary = 4096, .tied = true}});
  const Workload workload{.batch = 16, .optimizer = {.method = Method::adam}};
  for (const Planned& each : plan_strategies(model, workload, dgx_h100(), {}, {.ranks = 8, .best = 4}))
    EXPECT_DOUBLE_EQ(estimate(bind(model, each.strategy, workload), dgx_h100()).seconds, each.cost.seconds)
        << each.strategy.print();
  const auto chimera = plan_strategies(model, workload, dgx_h100(), {},
                                       {.ranks = 8, .best = 4, .least_stages = 2, .kinds = {ScheduleKind::chimera}});
  EXPECT_FALSE(chimera.empty());
}

// The best of each kind come first; more of a kind only where there are too few kinds of interest. With a batch of 128
// there are several; with 256 improving the fastest leaves its kind alone.
TEST(Planner, StrategiesDifferInKind) {
  if (short_run()) GTEST_SKIP() << long_under_sanitizer;
  const Model model = builtin_model("resnet18", {.extent = 64});
  for (const auto& [batch, alike] : {std::pair(Index{128}, false), {Index{256}, true}}) {
    const auto found = [&, size = batch](int best) {
      return plan_strategies(model, {.batch = size, .optimizer = {}}, dgx_h100(), {},
                             {.ranks = 16, .best = best, .kinds = {}});
    };
    const auto two = found(2), twelve = found(12);
    ASSERT_EQ(two.size(), 2U);
    EXPECT_LE(two[1].cost.seconds, of_interest * two[0].cost.seconds) << two[1].strategy.print();
    EXPECT_EQ(kind_of(model, two[0].strategy) == kind_of(model, two[1].strategy), alike) << batch;
    EXPECT_GE(twelve.size(), 8U) << "12, less those that became equal";
    std::set<std::string> texts;
    std::map<StrategyKind, double> least;
    for (const Planned& each : twelve) {
      EXPECT_TRUE(texts.insert(each.strategy.print()).second) << each.strategy.print();
      least.emplace(kind_of(model, each.strategy), each.cost.seconds);
    }
    const auto near = std::count_if(least.begin(), least.end(), [&](const auto& kind) {
      return kind.second <= of_interest * twelve.front().cost.seconds;
    });
    EXPECT_EQ(near == 1, alike) << "of twelve strategies";
  }
  // One kind alone: the next best of it are found in further rounds.
  const PlannerOptions samples{.ranks = 4, .best = 3, .examined = 1, .most_split = 1, .kinds = {}};
  EXPECT_EQ(plan_strategies(model, {.batch = 256, .optimizer = {}}, dgx_h100(), {}, samples).size(), 3U);
}

TEST(Planner, FindsTheSameEachTime) {
  const Model model = builtin_model(some<const char*>({"lenet5", "resnet18"}).back(), {.extent = 64});
  const auto texts = [&] {
    std::string all;
    for (const Planned& each :
         plan_strategies(model, {.batch = 128, .optimizer = {}}, dgx_h100(), {}, {.ranks = 32, .best = 5}))
      all += fmt::format("{} {}\n", each.strategy.print(), each.cost.seconds);
    return all;
  };
  EXPECT_EQ(texts(), texts());
}

// What is returned has short rules, and no group of its layers has a better layout.
TEST(Planner, NoGroupOfLayersHasABetterLayout) {
  for (const char* name : some<const char*>({"lenet5", "alexnet", "vgg16", "resnet18"})) {
    const Model model = builtin_model(name, {.extent = 64});
    const Workload workload{.batch = 256, .optimizer = {}};
    for (const Planned& each : plan_strategies(model, workload, dgx_h100(), {}, {.ranks = 16, .best = 2})) {
      EXPECT_LE(each.strategy.rules().size(), 15U) << name;
      for (const LayoutReason& reason : layout_reasons(model, each.strategy, workload, dgx_h100())) {
        if (reason.second.empty() || kind_of(model, reason.with) != kind_of(model, each.strategy)) continue;
        EXPECT_GE(reason.cost.seconds, 0.999 * each.cost.seconds) << reason.layout << " to " << reason.second;
      }
    }
  }
}

TEST(Planner, WhatWasMeasuredDecides) {
  const Model model = small();
  const Workload workload{.batch = 64, .optimizer = {}};
  const PlannerOptions options{.ranks = 2};
  for (const std::string pattern : {"N H@y", "N C@c", "N@data"}) {  // the pattern whose layers take next to nothing
    Strategy strategy(pattern == "N H@y" ? "y=2" : pattern == "N C@c" ? "c=2" : "data=2");
    const Plan plan = bind(model, strategy.layer("*", {.output = pattern}), workload);
    KernelTimes times("here");
    for (const auto& layer : plan.layers)
      for (int rank = 0; rank < 2; ++rank) times.set(local_work(layer, rank, workload), {}, {1e-9, 1e-9, 5e-10, 5e-10});
    const auto best = plan_strategies(model, workload, default_machine(), times, options).front();
    EXPECT_LE(best.cost.seconds, estimate(plan, default_machine(), times).seconds) << pattern;
    EXPECT_LT(best.cost.seconds, plan_strategies(model, workload, default_machine(), {}, options).front().cost.seconds)
        << pattern;
  }
}

// Within a memory limit, the result is no worse than any of the usual strategies that fit.
TEST(Planner, WithinALimitNoWorseThanWhatFits) {
  const Model model = builtin_model("lenet5", {});
  const Workload workload{.batch = 64, .optimizer = {}};
  Machine machine = default_machine();
  for (auto& level : machine.levels) level.latency.value *= 50;  // so that stages, which send least often, may be best
  std::vector<Strategy> usual{Strategy("data=4").layer("*", {.output = "N@data"}),
                              Strategy("y=4").layer("*", {.output = "N H@y"}),
                              Strategy("data=2 y=2").layer("*", {.output = "N@data H@y"})};
  for (const char* kind : {"gpipe", "1f1b"})
    for (const int stages : {2, 4}) {
      Strategy strategy(stages == 4 ? "" : "data=2");
      if (stages == 2) strategy.layer("*", {.output = "N@data"});
      strategy.stages(stages).schedule(kind, stages);
      usual.push_back(place_stages(model, strategy, workload, machine, {}));
    }
  std::vector<Planned> all;
  for (const auto& strategy : usual)
    for (const auto& variant : variants(strategy, 16, layers_to_keep(bind(model, strategy, workload))))
      all.push_back({variant, estimate(bind(model, variant, workload), machine)});
  const auto least = [&](auto key) {
    const auto less = [&](const Planned& a, const Planned& b) { return key(a) < key(b); };
    return *std::min_element(all.begin(), all.end(), less);
  };
  const Index fastest = least([](const Planned& one) { return one.cost.seconds; }).cost.memory.total;
  const Index smallest = least([](const Planned& one) { return one.cost.memory.total; }).cost.memory.total;
  ASSERT_LT(2 * smallest, fastest);
  int staged = 0;
  for (Index limit = fastest; limit >= smallest; limit = limit * (short_run() ? 1 : 4) / 5) {
    const auto within = [&](const Planned& one) { return one.cost.memory.total <= limit; };
    const Planned expected =
        least([&](const Planned& one) { return within(one) ? one.cost.seconds : std::numeric_limits<double>::max(); });
    const PlannerOptions options{.ranks = 4, .memory_limit = limit};
    const Planned found = plan_strategies(model, workload, machine, {}, options).front();
    EXPECT_LE(found.cost.memory.total, limit);
    EXPECT_LE(found.cost.seconds, 1.0001 * expected.cost.seconds) << limit << "\n" << expected.strategy.print();
    staged += !found.strategy.groups().empty();
  }
  EXPECT_TRUE(staged > 0 || short_run()) << "a short run has two of these limits";
}

TEST(Planner, WhereNothingFitsTheSmallestIsGiven) {
  const Workload workload{.batch = 4, .optimizer = {}};
  PlannerOptions options{.ranks = 2, .memory_limit = 10000};
  try {
    plan_strategies(small(), workload, default_machine(), {}, options);
    FAIL();
  } catch (const NothingFits& error) {
    const Index held = error.smallest.cost.memory.total;
    EXPECT_GT(held, options.memory_limit);
    EXPECT_NE(std::string(error.what()).find("the smallest holds " + print_bytes(held)), std::string::npos);
    options.memory_limit = held;
    EXPECT_EQ(plan_strategies(small(), workload, default_machine(), {}, options).front().cost.memory.total, held);
  }
}

}  // namespace
}  // namespace partita::test::planner_test
