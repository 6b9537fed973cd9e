#include "partita/strategies/plan/bind.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "partita/strategies/plan/traffic.hpp"
#include "strategies/plan/bind.hpp"
#include "test/support/error_of.hpp"
#include "test/support/placed.hpp"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

namespace partita::test::bind_test {

namespace {

/// fashion_cnn, bound with one rule for all layers and more rules after it.
struct Bound {
  Bound(const char* grid, const char* all, const std::vector<std::pair<std::string, LayerRule>>& rules = {},
        const Workload& workload = {.batch = 6, .optimizer = {}}) {
    Strategy strategy(grid);
    if (all != nullptr) strategy.layer("*", {.output = all});
    for (const auto& [match, rule] : rules) strategy.layer(match, rule);
    plan = bind(fashion_cnn(), strategy, workload);
  }
  const LayerPlan& operator[](std::string_view name) const { return plan.layers[index(name)]; }
  std::size_t index(std::string_view name) const {
    for (std::size_t i = 0; i < plan.layers.size(); ++i)
      if (plan.layers[i].name == name) return i;
    broken("no such layer");
  }
  /// Returns the axes over which the gradient of a layer's weight i is a pending sum.
  std::string partial(std::string_view name, std::size_t i) const {
    return plan.grid().print((*this)[name]->at.dw[i].partial());
  }
  /// Returns role, verb and messages/bytes of each item, e.g. "halo x exchange 1/336, ...".
  std::string traffic(std::string_view layer, int rank) const {
    std::string text;
    for (const auto& item : layer_traffic(plan, static_cast<int>(index(layer)), rank))
      text += fmt::format("{}{} {} {}/{}", text.empty() ? "" : ", ", item.role, name(item.verb), item.traffic.messages,
                          item.traffic.bytes);
    return text;
  }
  Plan plan;
};

using Rules = std::vector<std::pair<std::string, LayerRule>>;

/// Expects that fashion_cnn on "data=2 y=2" with these rules is refused.
void expect_refused(const Rules& rules, std::initializer_list<std::string_view> parts) {
  expect_error([&] { Bound("data=2 y=2", nullptr, rules); }, parts);
}

bool moves_nothing(const LayerPlan& layer) {
  for (const auto& steps : layer->redistribute_input)
    if (!steps.empty()) return false;
  return layer->redistribute_output.empty();
}

}  // namespace

TEST(Bind, SerialPlanMovesNothing) {
  const Bound b("", nullptr);
  EXPECT_EQ(rank_traffic(b.plan, 0).counted, Traffic{});
  EXPECT_TRUE(b.plan.axis_sets().empty());
  EXPECT_EQ(b.plan.schedule.print(), "0F0 0B0 0reduce 0step\n");
  for (const auto& layer : b.plan.layers) {
    EXPECT_TRUE(moves_nothing(layer)) << layer.name;
    EXPECT_TRUE(layer->notes.empty()) << layer.name;
  }
}

TEST(Bind, SamplesAlone) {
  const Bound b("data=3", "N@data");
  for (const auto& layer : b.plan.layers) {
    EXPECT_TRUE(moves_nothing(layer)) << layer.name;
    EXPECT_EQ(layer->y.sharding('N'), b.plan.grid().all()) << layer.name;
  }
  EXPECT_EQ(b.partial("conv1", 0), "(data)");
  EXPECT_EQ(b.partial("fc2", 1), "(data)");
  EXPECT_EQ(b.partial("bn1", 0), "()") << "backward gets complete global statistics";
}

TEST(Bind, SamplesAndRows) {
  const Bound b("data=2 y=2", "N@data H@y");
  EXPECT_EQ(b["conv2"]->y.print(), "N@data C H@y W");
  EXPECT_EQ(b["conv2"]->at.w[0].print(), "F C H W");
  EXPECT_EQ(b.partial("conv1", 0), "(data,y)");
  EXPECT_EQ(b["loss"]->at.y.print(), "N@data");
  for (const char* name : {"conv1", "bn1", "relu1", "pool1", "conv2", "bn2", "relu2", "pool2"})
    EXPECT_TRUE(moves_nothing(b[name])) << name;
  EXPECT_TRUE(b["conv1"]->at.x_halo && b["conv1"]->at.dy_halo);
  EXPECT_TRUE(b["pool2"]->at.x_halo && !b["pool2"]->at.dy_halo) << "the halo of a pooling goes back and is summed";
  EXPECT_FALSE(b["conv1"]->needs_dx[0]);
  EXPECT_TRUE(b["conv2"]->needs_dx[0]);
}

TEST(Bind, LinearAfterConvolutionSumsAndGathersNothing) {
  const Bound b("data=2 y=2", "N@data H@y");
  const auto& fc = b["fc1"];
  EXPECT_TRUE(fc->redistribute_input[0].empty()) << print(fc->redistribute_input[0]);
  EXPECT_EQ(fc->at.x[0].print(), "N@data C H@y W");
  EXPECT_EQ(fc->at.y.print(), "N@data C sum@y");
  EXPECT_EQ(fc->y.print(), "N@data C");
  EXPECT_EQ(print(fc->redistribute_output), "all_reduce(y)");
  EXPECT_TRUE(fc->redistribute_dy.empty()) << "the dual of a pending sum is replicated";
  EXPECT_EQ(fc->at.dx[0].print(), "N@data C H@y W");
  EXPECT_TRUE(fc->redistribute_dx[0].empty());
}

TEST(Bind, GradientsOfWeightsAreSumsOverWhoComputedParts) {
  const char* rows = "N@data H@y W@x";
  const Workload large{.batch = 512, .optimizer = {}};
  const Bound cut("data=2 y=2 x=2", rows, {}, large);
  EXPECT_EQ(cut["fc1"]->at.w[0].print(), "F C H@y W@x");
  EXPECT_EQ(cut.partial("fc1", 0), "(data)");
  EXPECT_EQ(cut.partial("fc1", 1), "(data)");
  const Bound half("data=2 y=2 x=2", rows, {{"fc1", {.weights = "F C H@y W"}}}, large);
  EXPECT_EQ(half["fc1"]->at.w[0].print(), "F C H@y W");
  EXPECT_EQ(half.partial("fc1", 0), "(data)");
  EXPECT_EQ(print(half["fc1"]->at.products[2].redistribute_c), "all_gather(x)");
  const Bound whole("data=2 y=2 x=2", rows, {{"fc1", {.weights = "F"}}}, large);
  EXPECT_EQ(whole["fc1"]->at.w[0].print(), "F C H W");
  EXPECT_EQ(whole.partial("fc1", 0), "(data)");
  EXPECT_EQ(print(whole["fc1"]->at.products[2].redistribute_c), "all_gather(y,x)");
  EXPECT_EQ(whole["fc1"]->at.y.print(), "N@data C sum@(y,x)");
  // every rank of y computes fc2 in full: no sum over it
  EXPECT_EQ(cut.partial("fc2", 0), "(data)");
}

TEST(Bind, FeaturesOfLinearLayers) {
  const Bound b("data=2 y=2", "N@data", {{"fc1", {.output = "N@data C@y", .algorithm = "summa-c"}}},
                {.batch = 32, .optimizer = {}});
  const auto& fc = b["fc1"];
  EXPECT_EQ(fc->at.w[0].print(), "F@y C H W");
  EXPECT_EQ(fc->at.w[1].print(), "F@y");
  EXPECT_EQ(fc->at.y.print(), "N@data C@y");
  EXPECT_EQ(fc->at.dx[0].print(), "N@data C H W sum@y");
  EXPECT_EQ(print(fc->redistribute_dx[0]), "all_reduce(y)");
  EXPECT_EQ(b.partial("fc1", 0), "(data)");
  EXPECT_EQ(b.partial("fc1", 1), "(data)");
}

TEST(Bind, PredictsTraffic) {
  const Bound b("y=2", "H@y", {}, {.batch = 3, .optimizer = {}});
  EXPECT_EQ(b.traffic("image", 0), "");
  EXPECT_EQ(b.traffic("conv1", 0),
            fmt::format("halo x exchange 1/{}, dw all_reduce 1/{}", 3 * 28 * 4, (288 + 64 * 32 * 9) * 4))
      << "one bucket with conv2's";
  EXPECT_EQ(b.traffic("bn1", 1), "statistics forward all_reduce 1/1024, statistics backward all_reduce 1/512");
  EXPECT_EQ(b.traffic("pool1", 0), "");
  // 7 rows out as 4 + 3 of 14 in as 7 + 7: one row travels from rank 1 to 0, and its gradient back
  EXPECT_EQ(b.traffic("pool2", 1), fmt::format("halo x exchange 1/{}", 3 * 14 * 64 * 4));
  EXPECT_EQ(b.traffic("pool2", 0), fmt::format("halo dx exchange 1/{}", 3 * 14 * 64 * 4));
  EXPECT_EQ(b.traffic("conv2", 1),
            fmt::format("halo x exchange 1/{}, halo dy exchange 1/{}", 3 * 14 * 32 * 4, 3 * 14 * 64 * 4));
  EXPECT_EQ(b.traffic("fc1", 0), fmt::format("y all_reduce 1/{}", 3 * 128 * 4)) << "w is sharded like x: no sum";
  EXPECT_EQ(b.traffic("fc2", 0), "");
  const Bound evaluation("y=2", "H@y", {}, {.batch = 3, .training = false, .optimizer = {}});
  EXPECT_EQ(evaluation.plan.schedule.print(), "0F0\n");
  EXPECT_EQ(evaluation.traffic("bn1", 1), "");
  EXPECT_EQ(evaluation.traffic("conv1", 0), fmt::format("halo x exchange 1/{}", 3 * 28 * 4));
}

TEST(Bind, PredictsMemory) {
  const Bound b("y=2", "H@y", {}, {.batch = 3, .dtype = DType::bf16, .optimizer = {}});
  const auto use = layer_memory(b.plan, static_cast<int>(b.index("conv1")), 0);
  EXPECT_EQ(use[MemoryClass::weights], 288 * (4 + 2)) << "masters in f32, and copies for kernels in bf16";
  EXPECT_EQ(use[MemoryClass::gradients], 288 * 2);
  EXPECT_EQ(use[MemoryClass::optimizer], 288 * 4);
  EXPECT_EQ(use[MemoryClass::activations], 3 * 32 * 14 * 28 * 2);
  EXPECT_EQ(use[MemoryClass::halos], 3 * 15 * 28 * 2);
}

TEST(Bind, RecomputesWhatItsRulesSay) {
  const Bound b("y=2", "H@y",
                {{"loss", {.recompute = false}}, {"*", {.recompute = true}}, {"conv2", {.recompute = false}}});
  EXPECT_FALSE(b["loss"].recompute) << "a pattern skips layers that cannot be recomputed";
  EXPECT_FALSE(b["conv2"].recompute);
  EXPECT_TRUE(b["conv1"].recompute);
  // The three convolutions of the largest images: the outputs of the first exist only while those of the others do not.
  const Model mesh = mesh_tangling({.extent = 256, .width = 0.1});
  Strategy some;
  some.layer("*conv1_1", {.recompute = true});
  const Workload workload{.batch = 1, .optimizer = {}};
  EXPECT_LT(peak_memory(bind(mesh, some, workload), 0).total, peak_memory(bind(mesh, Strategy(), workload), 0).total);
}

TEST(Memory, ALimitIsNotPassedByWhatWasPredicted) {
  const Bound b("y=2", "H@y", {});
  EXPECT_NO_THROW(check_memory(b.plan, std::max(peak_memory(b.plan, 0).total, peak_memory(b.plan, 1).total)));
  expect_error([&] { check_memory(b.plan, peak_memory(b.plan, 0).total / 2); },
               {"rank", "activations", "more than the memory limit"});
}

TEST(Bind, RulesMergeKeyByKeyAndLaterOnesWin) {
  const Bound b("data=2 y=2", "N@data H@y",
                {{"fc1", {.weights = "F"}}, {"conv*", {.output = "N@data"}}, {"conv2", {.output = "N@y"}}});
  EXPECT_EQ(b["fc1"]->y.print(), "N@data C") << "a rule for other keys does not change the output";
  EXPECT_EQ(b["fc1"]->at.w[0].print(), "F C H W");
  EXPECT_EQ(b["conv1"]->y.print(), "N@data C H W");
  EXPECT_EQ(b["conv2"]->y.print(), "N@y C H W");
  EXPECT_EQ(b["relu1"]->y.print(), "N@data C H@y W");
  const Bound later("data=2 y=2", nullptr, {{"conv1", {.output = "N@y"}}, {"*", {.output = "N@data"}}});
  EXPECT_EQ(later["conv1"]->y.print(), "N@data C H W") << "the later rule wins, even if it is a pattern";
  const Bound input("data=2 y=2", "N@data H@y", {{"relu1", {.input = "N@y C@data"}}});
  EXPECT_EQ(input["relu1"]->at.x[0].print(), "N@y C@data H W");
  EXPECT_EQ(input["relu1"]->y.print(), "N@data C H@y W");
}

TEST(Bind, LayersWithoutRulesFollowTheirInput) {
  const Bound b("data=2 y=2", nullptr, {{"image", {.output = "N@data H@y"}}, {"relu2", {.output = "N@data C@y"}}});
  EXPECT_EQ(b["conv1"]->y.print(), "N@data C H@y W");
  EXPECT_EQ(b["pool1"]->y.print(), "N@data C H@y W");
  EXPECT_EQ(b["pool2"]->y.print(), "N@data C@y H W");
  EXPECT_EQ(b["fc1"]->y.print(), "N@data C") << "its channels are different ones";
  EXPECT_EQ(b["fc1"]->at.y.print(), "N@data C sum@y");
}

TEST(Bind, PatternsDropWhatALayerLacksAndSaySo) {
  const Bound b("data=2 y=2", "N@data H@y");
  EXPECT_TRUE(b["conv1"]->notes.empty());
  ASSERT_EQ(b["fc2"]->notes.size(), 1U);
  EXPECT_EQ(b["fc2"]->notes[0], "output of \"*\": it has no H");
  const Bound bare("data=2 y=2", "N@data C H W");
  EXPECT_TRUE(bare["fc2"]->notes.empty()) << "a dimension that the layer lacks and that is not sharded needs no note";
  expect_refused({{"fc2", {.output = "N@data H@y"}}}, {"layer 'fc2' (linear)", "rule 1: output = ", "column 8", "H"});
  expect_refused({{"fc*", {.output = "N@data H@y"}}}, {"rule 1: output = ", "\"fc*\"", "dimension H", "column 8"});
}

TEST(Bind, SlipsInRules) {
  expect_refused({{"*", {}}, {"conv3", {}}}, {"rule 2", "\"conv3\"", "did you mean 'conv1'?", "'pool2'"});
  expect_refused({{"fx*", {}}}, {"rule 1", "\"fx*\"", "no layer of the model 'fashion-cnn'"});
  expect_refused({{"conv1", {.output = "N@dota"}}}, {"rule 1: output = ", "column 3", "did you mean 'data'?"});
  expect_refused({{"*", {.output = "N@dota"}}}, {"rule 1", "did you mean 'data'?"});
  expect_refused({{"conv1", {.output = "N@data H@data"}}}, {"rule 1: output = ", "'data'"});
  expect_refused({{"conv1", {.output = "N@(data"}}}, {"rule 1: output = "});
  expect_refused({{"conv1", {.output = "Q@data"}}}, {"rule 1: output = ", "Q"});
  expect_refused({{"conv1", {.algorithm = "stationary-z"}}},
                 {"rule 1", "\"stationary-z\"", "a conv has 'auto', 'stationary-x'", "did you mean 'stationary-"});
  expect_refused({{"bn1", {.algorithm = "summa"}}}, {"rule 1", "\"summa\"", "a batch_norm has 'auto'"});
  EXPECT_NO_THROW(Bound("y=2", "H@y", {{"*", {.algorithm = "auto"}}}));
  const auto file = Strategy::parse("grid = \"y=2\"\n\n[[layer]]\nmatch = \"conv1\"\noutput = \"H@x\"", "s.toml");
  expect_error([&] { bind(fashion_cnn(), file, {}); },
               {"layer 'conv1' (conv)", "s.toml, line 3", "output = layout \"H@x\"", "did you mean 'y'?"});
}

TEST(Bind, LayoutsInWhichALayerCannotRun) {
  expect_refused({{"conv1", {.algorithm = "stationary-x"}}},
                 {"layer 'conv1' (conv)", "\"stationary-x\" does not fit", "shards C"});
  expect_refused({{"conv2", {.output = "C@y", .algorithm = "stationary-w"}}}, {"layer 'conv2'", "\"stationary-w\""});
  expect_refused({{"conv2", {.input = "N@data C@y", .algorithm = "stationary-y"}}},
                 {"layer 'conv2'", "\"N@data C@y H W\""});
  expect_refused({{"conv2", {.output = "N@data", .input = "H@y", .weights = "C@y"}}},
                 {"layer 'conv2'", "weights \"F C@y H W\"", "spatial dimensions"});
  expect_refused({{"conv2", {.weights = "H@y"}}}, {"layer 'conv2'", "weights", "shard the kernel's H"});
  for (const char* layer : {"image", "conv1", "bn1", "relu1", "pool1", "drop", "loss"})
    expect_refused({{layer, {.output = "sum@y"}}}, {fmt::format("layer '{}'", layer), "pending sum over (y)"});
  expect_refused({{"bn1", {.weights = "C@y"}}},
                 {"layer 'bn1' (batch_norm)", "scale and shift always have the layout of its input's channels"});
  EXPECT_NO_THROW(Bound("y=2", nullptr, {{"bn1", {.output = "C@y", .weights = "C@y"}}}));
  expect_refused({{"fc1", {.weights = "F sum@y"}}}, {"layer 'fc1' (linear)", "only an output may be a pending sum"});
  expect_refused({{"fc1", {.input = "N sum@y"}}}, {"layer 'fc1'", "input", "only an output may be a pending sum"});
  expect_refused({{"relu1", {.weights = "F@y"}}}, {"layer 'relu1'", "the layer has no weights"});
  expect_refused({{"image", {.input = "N@data"}}}, {"layer 'image'", "the layer has no inputs"});
  EXPECT_NO_THROW(Bound("y=2", nullptr, {{"fc1", {.weights = "F@y"}}})) << "a product gathers what it needs";
  expect_refused({{"fc1", {.output = "C@y", .algorithm = "auto/dot/2.5d"}}},
                 {"layer 'fc1' (linear): product dw: A[km]", "cannot run \"2.5d\"", "three axes"});
  expect_refused({{"fc1", {.algorithm = "auto/auto/auto/dot"}}},
                 {"rule 1: algorithm = ", "a linear takes up to 3 names, not 4"});
  expect_refused({{"fc1", {.algorithm = "auto/summa-d"}}}, {"\"summa-d\"", "did you mean 'summa-a'"});
}

TEST(Bind, ModelsAndWorkloadsThatCannotBe) {
  const auto refused = [](const Model& model, std::initializer_list<std::string_view> parts) {
    expect_error([&] { bind(model, Strategy(), {}); }, parts);
  };
  Model m("two");
  const auto t = m.input("in", {.channels = 3, .spatial = {}});
  refused(m, {"'two' has 0 losses"});
  m.softmax_cross_entropy("loss1", t);
  EXPECT_NO_THROW(bind(m, Strategy(), {}));
  Model inputs("inputs");
  const auto first = inputs.input("a", {.channels = 3, .spatial = {}});
  const auto second = inputs.input("b", {.channels = 3, .spatial = {}});
  inputs.softmax_cross_entropy("loss", inputs.add("sum", first, second));
  EXPECT_NO_THROW(bind(inputs, Strategy(), {}));
  inputs.input("c", {.channels = 3, .spatial = {}});
  refused(inputs, {"'inputs' has 1 losses", "its last layer"});
  Model unused = m;
  unused.relu("relu", t);
  refused(unused, {"'two' has 1 losses", "its last layer"});
  m.softmax_cross_entropy("loss2", t);
  refused(m, {"'two' has 2 losses"});
  Model dangling("dangling");
  const auto u = dangling.input("in", {.channels = 3, .spatial = {}});
  dangling.relu("left", u);
  dangling.softmax_cross_entropy("loss", u);
  refused(dangling, {"layer 'left'", "its output is unused"});
  expect_error([] { bind(fashion_cnn(), {}, {.batch = 0, .optimizer = {}}); }, {"the batch is 0"});
  expect_error([] { bind(fashion_cnn(), {}, {.optimizer = {.rate = 0}}); }, {"learning rate is 0"});
}

TEST(Bind, HashTellsPlansApart) {
  const auto hash = [](const char* grid, const char* all, Index batch = 6) {
    return Bound(grid, all, {}, {.batch = batch, .optimizer = {}}).plan.hash();
  };
  EXPECT_EQ(hash("a=2", "N@a"), hash("a=2", "N@a"));
  EXPECT_NE(hash("a=2", "N@a"), hash("a=2", "H@a"));
  EXPECT_NE(hash("a=2", "N@a"), hash("a=4", "N@a"));
  EXPECT_NE(hash("a=2", "N@a"), hash("a=2", "N@a", 7));
}

/// The verbs of redistributions, e.g. "all_gather".
std::string verbs(std::initializer_list<LayerPlan::Steps> redistributions) {
  std::vector<std::string_view> all;
  for (const auto& steps : redistributions)
    for (const auto& step : steps) all.push_back(name(step.verb));
  return fmt::format("{}", fmt::join(all, " "));
}

/// A block of two layers per place, first wider and then as wide as before, with a layer before and behind it.
Plan bind_block(const std::string& outside) {
  Model m("block");
  Value t = m.gelu("before",
                   m.linear("first", m.input("in", {.channels = 8, .length = 12}), {.features = 8, .per_place = true}));
  t = m.gelu("gelu", m.linear("wide", t, {.features = 32, .per_place = true}));
  t = m.gelu("behind", m.linear("narrow", t, {.features = 8, .per_place = true}));
  m.softmax_cross_entropy("loss", t);
  Strategy s("t=4");
  s.layer("*", {.output = outside}).layer("first", {.output = outside});
  s.layer("wide", {.output = "C@t"}).layer("gelu", {.output = "C@t"}).layer("narrow", {.output = outside});
  return bind(m, s, {.batch = 2, .optimizer = {}});
}

// Columns of the first weight and rows of the second: one sum for both layers, in either direction.
TEST(Bind, ColumnsAndRowsPerPlaceSumOnce) {
  const Plan plan = bind_block("");
  const LayerPlan wide = plan.layer("wide"), narrow = plan.layer("narrow");
  EXPECT_EQ(wide->at.w[0].print(), "F@t C");
  EXPECT_EQ(narrow->at.w[0].print(), "F C@t");
  EXPECT_EQ(narrow->y.print(), "N C L");
  EXPECT_EQ(narrow->at.y.print(), "N C L sum@t");
  EXPECT_EQ(verbs({narrow->redistribute_output}), "all_reduce");
  EXPECT_EQ(verbs({wide->redistribute_input[0], wide->redistribute_output}), "");
  EXPECT_EQ(verbs({narrow->redistribute_input[0], narrow->redistribute_dy}), "");
  EXPECT_EQ(verbs({wide->redistribute_dx[0]}), "all_reduce");
  EXPECT_EQ(verbs({narrow->redistribute_dx[0], wide->redistribute_dy}), "");
}

// With places over the same ranks outside, the sum becomes a reduce-scatter and an all-gather of as many bytes.
TEST(Bind, PlacesBesideColumnsAndRowsScatterAndGather) {
  const Plan plan = bind_block("L@t");
  const LayerPlan wide = plan.layer("wide"), narrow = plan.layer("narrow");
  EXPECT_EQ(plan.layers[2]->y.print(), "N C L@t");
  EXPECT_EQ(verbs({wide->redistribute_input[0]}), "all_gather");
  EXPECT_EQ(verbs({narrow->redistribute_output}), "reduce_scatter");
  EXPECT_EQ(verbs({narrow->redistribute_dy}), "all_gather");
  EXPECT_EQ(verbs({wide->redistribute_dx[0]}), "reduce_scatter");
}

/// What rank 0 of four sends in a step of a transformer of two blocks, by role and verb: how often, and how many bytes.
std::map<std::string, Traffic> sent_by_transformer(const std::string& between) {
  const Model m =
      builtin_model("gpt", {.transformer = {.layers = 2, .hidden = 16, .heads = 4, .sequence = 8, .vocabulary = 64}});
  Strategy s("t=4");
  s.layer("*", {.output = between}).layer("embedding", {.output = between, .weights = "V@t"});
  for (const char* cut : {"*_qkv", "*_attention", "*_up", "*_gelu", "scores"}) s.layer(cut, {.output = "C@t"});
  std::map<std::string, Traffic> sent;
  const Plan plan = bind(m, s, {.batch = 2, .dtype = DType::f32, .optimizer = {}});
  for (int layer = 0; layer < static_cast<int>(plan.layers.size()); ++layer)
    for (const auto& item : layer_traffic(plan, layer, 0)) {
      if (item.role == "dw") continue;  // sums of gradients
      Traffic& all = sent[fmt::format("{} {}", item.role, name(item.verb))];
      all.messages += item.traffic.messages;
      all.bytes += item.traffic.bytes;
    }
  return sent;
}

// Two pairs of linear layers in each block, the embedding, and the scores: one sum for each, in either direction.
TEST(Bind, ATransformerSumsOncePerPairOfLayers) {
  constexpr Index activations = 2 * 8 * 16 * 4, rows = 2 * 8 * 8;  // bytes of x[N C L], and of one f64 for each row
  const std::map<std::string, Traffic> columns_rows{{"y all_reduce", {5, 5 * activations}},
                                                    {"dx all_reduce", {5, 5 * activations}},
                                                    {"largest scores all_reduce", {1, rows}},
                                                    {"sums of scores all_reduce", {1, 3 * rows}},
                                                    {"loss all_reduce", {1, 2 * 8}}};
  EXPECT_EQ(sent_by_transformer(""), columns_rows);
  auto places = sent_by_transformer("L@t");
  EXPECT_EQ(places["y reduce_scatter"], (Traffic{5, 5 * activations}));
  EXPECT_EQ(places["dy all_gather"], (Traffic{5, 5 * activations}));
  EXPECT_EQ(places["x all_gather"], (Traffic{6, 5 * activations + 2 * 8 * 4})) << "and the tokens";
  EXPECT_EQ(places["dx reduce_scatter"], (Traffic{5, 5 * activations}));
  for (const char* gone : {"y all_reduce", "dx all_reduce"}) EXPECT_FALSE(places.contains(gone)) << gone;
}

// Rows that are cut leave sums, columns nothing, and samples the sum of the table's gradient.
TEST(Bind, TablesAreCutByRowsColumnsAndSamples) {
  Model m("tables");
  const Value in = m.input("in", {.channels = 2, .length = 3, .tokens = true});
  m.softmax_cross_entropy("loss", m.linear("fc", m.tables("tables", in, {.rows = 5, .features = 4}), {.features = 2}));
  const auto bound = [&](const LayerRule& rule) {
    return bind(m, Strategy("r=2").layer("tables", rule), {.batch = 8, .optimizer = {}}).layer("tables");
  };
  const LayerPlan rows = bound({.output = "N@r", .weights = "V@r"}), columns = bound({.output = "C@r"}),
                  samples = bound({.output = "N@r"});
  EXPECT_EQ(rows->at.y.print(), "N C L sum@r");
  EXPECT_EQ(verbs({rows->redistribute_output}), "reduce_scatter");
  EXPECT_EQ(rows->at.dw[0].print(), "V@r C L");
  EXPECT_EQ(columns->at.x[0].print(), "N C L");
  EXPECT_EQ(columns->at.dw[0].print(), "V C@r L");
  EXPECT_EQ(samples->at.x[0].print(), "N@r C L");
  EXPECT_EQ(samples->at.dw[0].print(), "V C L sum@r");
}

// Places that are cut become groups of heads, and groups become places.
TEST(Bind, AttentionOverCutPlacesIsTwoAllToAlls) {
  Model m("attention");
  Value t = m.linear("qkv", m.input("in", {.channels = 3, .length = 6}), {.features = 24, .per_place = true});
  t = m.attention("attention", t, {.heads = 4, .groups = 2});
  m.softmax_cross_entropy("loss", t);
  const auto bound = [&](const char* grid) {
    Strategy s(grid);
    return bind(m, s.layer("*", {.output = "L@l"}), {.batch = 2, .optimizer = {}}).layer("attention");
  };
  const LayerPlan two = bound("l=2");
  EXPECT_EQ(two->at.x[0].print(), "N C@l L");
  EXPECT_EQ(two->at.y.print(), "N C@l L");
  for (const auto& steps :
       {two->redistribute_input[0], two->redistribute_output, two->redistribute_dy, two->redistribute_dx[0]})
    EXPECT_EQ(verbs({steps}), "exchange");
  const LayerPlan three = bound("l=3");
  EXPECT_EQ(three->at.algorithm, Algorithm::ring) << "two groups cannot be cut in three";
  EXPECT_EQ(three->at.x[0].print(), "N C L@l");
}

/// What the ranks send for attention around a ring, as "ring x 2 384; ring dx 2 384", with messages and bytes.
std::vector<std::string> sent_around_ring(const Attention& attention, Index length, DType dtype) {
  Model m("attention");
  Value t = m.linear("qkv", m.input("in", {.channels = 3, .length = length}), {.features = 24, .per_place = true});
  t = m.attention("attention", t, attention);
  m.softmax_cross_entropy("loss", t);
  Strategy s("l=3");
  s.layer("*", {.output = "L@l"}).layer("attention", {.algorithm = Algorithm::ring});
  const Plan plan = bind(m, s, {.batch = 2, .dtype = dtype, .optimizer = {}});
  std::vector<std::string> sent;
  for (int rank = 0; rank < 3; ++rank) {
    std::string text;
    for (const auto& item : layer_traffic(plan, 2, rank))
      text += fmt::format("{}{} {} {}", text.empty() ? "" : "; ", item.role, item.traffic.messages, item.traffic.bytes);
    sent.push_back(text);
  }
  return sent;
}

// Two groups of keys and values with 3 channels are 12 channels. Of two samples with 6 places, a rank has a block of 48
// numbers. It sends two blocks in forward, as many again in backward, and the gradients of two.
TEST(Bind, ARingSendsKeysAndValuesToEveryRank) {
  const Attention attention{.heads = 4, .groups = 2};
  const std::vector<std::string> all(3, "ring x 2 384; ring x 2 384; ring dx 2 384");
  EXPECT_EQ(sent_around_ring(attention, 6, DType::f32), all);
  const std::vector<std::string> half(3, "ring x 2 192; ring x 2 192; ring dx 2 384");
  EXPECT_EQ(sent_around_ring(attention, 6, DType::bf16), half) << "gradients are summed in f32";
}

// Six heads of queries share one of keys. Seven places are blocks of 3, 2 and 2, with 48 bytes a place. The first rank
// sends its block, the second one both. Gradients of the first block go from the second rank to the last, then home.
TEST(Bind, ACausalRingSendsNoKeysThatNoPlaceSees) {
  const std::vector<std::string> expected{"ring x 1 144; ring x 1 144", "ring x 2 240; ring x 2 240; ring dx 1 144",
                                          "ring dx 2 240"};
  EXPECT_EQ(sent_around_ring({.heads = 6, .groups = 1, .causal = true}, 7, DType::f32), expected);
}

// Two heads of queries share one of keys, so that a place of two samples has 24 numbers of keys and values, and as many
// of queries for 8 heads. Each rank passes its block on once, and gets its gradient. The first one computes 2 places of
// the last: it gets queries, in backward with y, dy and logs of sums, and returns results with these logs, or dq.
TEST(Bind, ABalancedRingSendsQueriesToWhoHelps) {
  const std::vector<std::string> expected{"ring x 1 288; ring y 2 256; ring x 1 288; ring dx 1 192",
                                          "ring x 1 192; ring x 1 192; ring dx 1 288",
                                          "ring x 1 192; ring x 4 640; ring dx 1 192"};
  EXPECT_EQ(sent_around_ring({.heads = 4, .groups = 2, .causal = true}, 7, DType::f32), expected);
  const std::vector<std::string> half{"ring x 1 144; ring y 2 256; ring x 1 144; ring dx 1 192",
                                      "ring x 1 96; ring x 1 96; ring dx 1 288",
                                      "ring x 1 96; ring x 4 352; ring dx 1 192"};
  EXPECT_EQ(sent_around_ring({.heads = 4, .groups = 2, .causal = true}, 7, DType::bf16), half);
}

// The weights say over which axis a sum is pending.
TEST(Bind, AConvolutionLeavesThePendingSumThatIsAskedFor) {
  Model m("sum");
  Value t = m.conv("conv", m.input("in", {.channels = 4, .spatial = {5}}), {.filters = 3, .kernel = 3});
  m.softmax_cross_entropy("loss", m.linear("fc", t, {.features = 3}));
  Strategy s("c=2");
  s.layer("conv", {.output = "sum@c", .weights = "C@c"}).layer("loss", {.output = ""});
  const Plan plan = bind(m, s, {.batch = 2, .optimizer = {}});
  EXPECT_EQ(plan.layers[1]->y.print(), "N C W sum@c");
  EXPECT_EQ(plan.layers[1]->at.x[0].print(), "N C@c W");
}

TEST(Bind, FourThousandRanks) {
  const Bound b("data=64 y=8 x=8", "N@data H@y W@x", {}, {.batch = 256, .optimizer = {}});
  EXPECT_EQ(b.plan.grid().size(), 4096);
  EXPECT_EQ(b.partial("conv1", 0), "(data,y,x)");
  // rank 0 owns 4 rows and 4 columns of 4 samples, at a corner: two sides and a diagonal neighbor
  EXPECT_EQ(b.traffic("conv1", 0),
            fmt::format("halo x exchange 3/{}, dw all_reduce 1/{}", (4 + 4 + 1) * 4 * 4, (288 + 18432) * 4));
  EXPECT_GT(rank_traffic(b.plan, 0).counted.bytes, 0);
  EXPECT_LE(b["pool2"]->y.owned(4095).volume(), 0) << "with 7 rows on 8 ranks, the last rank has none";
}

namespace {

/// Binds a group normalization of 12 channels in `groups` groups and a linear layer after it, with one rule for the
/// normalization.
LayerPlan bound_norm(const char* grid, const char* output, Index groups) {
  Model m("norm");
  const Value x = m.input("in", {.channels = 12, .spatial = {5, 4}});
  m.softmax_cross_entropy("loss", m.linear("fc", m.group_norm("norm", x, {.groups = groups}), {.features = 3}));
  Strategy strategy(grid);
  strategy.layer("in", {.output = output});
  strategy.layer("norm", {.output = output});
  return bind(m, strategy, {.batch = 6, .optimizer = {}}).layer("norm");
}

}  // namespace

TEST(Bind, GroupNormSumsOverSpaceAlone) {
  const LayerPlan norm = bound_norm("data=2 y=2", "N@data H@y", 3);
  ASSERT_EQ(norm->at.collectives.size(), 2U);
  for (const auto& statistics : norm->at.collectives) {
    EXPECT_EQ(statistics.axes, norm->at.y.sharding('H'));
    EXPECT_EQ(statistics.layout.owned(0).volume(), 3 * 3) << "3 samples, 3 groups";
  }
  EXPECT_EQ(norm->at.dw[0].partial(), norm->at.y.sharding()) << "all samples and positions share scale";
}

TEST(Bind, GroupNormKeepsShardsOfWholeGroups) {
  const LayerPlan whole = bound_norm("c=3", "C@c", 6);  // 4 channels a rank, 2 a group
  EXPECT_TRUE(whole->at.collectives.empty());
  EXPECT_TRUE(moves_nothing(whole));
  EXPECT_NE(whole->at.w[0].sharding(), 0U);
  const LayerPlan cut = bound_norm("c=3", "C@c", 4);  // 3 a group
  EXPECT_EQ(cut->at.y.sharding(), 0U) << "a rank needs all channels of a group";
  EXPECT_FALSE(moves_nothing(cut));
}

TEST(Bind, RepeatedLayersAreTheSameOnTheirOwnStagesGrid) {
  ModelSize size;
  size.widths = {64, 64, 64, 64, 64, 64};
  const Model model = builtin_model("mlp", size);
  const Workload workload{.batch = 8, .optimizer = {}};
  const auto bound = [&](int stages) {
    Strategy strategy("c=2");
    strategy.layer("*", {.output = "N C@c"}).stages(stages);
    return test::bind_placed(model, strategy, workload);
  };
  const Plan one = bound(1), three = bound(3);
  for (std::size_t i = 0; i < three.layers.size(); ++i) {
    const Grid& grid = three.grid_of(static_cast<int>(i));
    const OperatorLayouts &at = three.layers[i]->at, &alone = one.layers[i]->at;
    EXPECT_EQ(at.y.grid(), grid) << three.layers[i].name;
    EXPECT_EQ(at.y.print(), alone.y.print());
    ASSERT_EQ(at.products.size(), alone.products.size());
    for (std::size_t p = 0; p < at.products.size(); ++p) {
      EXPECT_EQ(at.products[p].c_made, alone.products[p].c_made.on(grid)) << three.layers[i].name;
      EXPECT_EQ(at.products[p].a.layout.grid(), grid);
      EXPECT_EQ(at.products[p].panels, alone.products[p].panels);
    }
    for (const auto* all : {&at.x, &at.dx, &at.w, &at.dw})
      for (const Layout& layout : *all) EXPECT_EQ(layout.grid(), grid);
  }
}

// What decides the layouts is in the request: batch, data type, grid, weights, algorithms, what the layers before want.
TEST(Bind, IsTheSameWithWhatOtherCallsMade) {
  const Model model = builtin_model("lenet5", {});
  BindCache cache;
  const std::vector<LayerRule> of_fc1{{}, {.weights = "F@x C@c"}, {.weights = "F C"}, {.algorithm = "summa-b"}};
  for (const char* grid : {"c=2 x=2", "c=4 x=1", "c=2 x=3"})
    for (const char* rule : {"N@x C@c", "C@(c,x)", "N@(c,x)"})
      for (const LayerRule& fc1 : of_fc1)
        for (const int stages : {1, 2})
          for (const auto& [batch, dtype, training] : {std::tuple(12, DType::f32, true),
                                                       {13, DType::f32, true},
                                                       {12, DType::bf16, true},
                                                       {12, DType::f32, false}}) {
            Strategy strategy(grid);
            strategy.layer("*", {.output = rule}).layer("fc1", fc1).stages(stages);
            const Workload workload{.batch = batch, .dtype = dtype, .training = training, .optimizer = {}};
            const Strategy placed = test::placed(model, strategy, workload);
            const Plan alone = bind(model, placed, workload), shared = bind(model, placed, workload, cache);
            ASSERT_EQ(alone.layers.size(), shared.layers.size());
            for (std::size_t i = 0; i < alone.layers.size(); ++i)
              EXPECT_EQ(*alone.layers[i].binding, *shared.layers[i].binding) << alone.layers[i].name << "\n"
                                                                             << strategy.print() << "batch " << batch;
          }
}

}  // namespace partita::test::bind_test
