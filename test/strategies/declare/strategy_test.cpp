#include "partita/strategies/declare/strategy.hpp"

#include "partita/layouts/product/product.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "test/support/error_of.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

namespace partita::test::strategy_test {

namespace {

constexpr const char* text = R"(# a comment
grid = "data=2 y=2"

[schedule]
kind = "single"
microbatches = 1

[[layer]]
match = "*"
output = "N@data H@y"

[[layer]]
match = "fc?"
input = "N@data C"
output = "N@data C@y"
weights = "F@y"
algorithm = "auto"
)";

void expect_refused(std::string_view toml, std::initializer_list<std::string_view> parts) {
  expect_error([&] { Strategy::parse(toml, "s.toml"); }, parts);
}

bool same_rules(const Strategy& a, const Strategy& b) {
  if (a.rules().size() != b.rules().size()) return false;
  for (std::size_t i = 0; i < a.rules().size(); ++i) {
    const auto &x = a.rules()[i], &y = b.rules()[i];
    if (x.match != y.match || x.rule.output != y.rule.output || x.rule.input != y.rule.input ||
        x.rule.weights != y.rule.weights || x.rule.algorithm != y.rule.algorithm)
      return false;
  }
  return true;
}

}  // namespace

TEST(Strategy, ReadsRulesWithTheirPlaces) {
  const auto s = Strategy::parse(text, "s.toml");
  EXPECT_EQ(s.file(), "s.toml");
  EXPECT_EQ(s.grid().print(), "data=2 y=2");
  ASSERT_EQ(s.rules().size(), 2U);
  EXPECT_EQ(s.rules()[0].match, "*");
  EXPECT_EQ(s.rules()[0].rule.output, "N@data H@y");
  EXPECT_EQ(s.rules()[0].rule.weights, std::nullopt);
  EXPECT_NE(s.rules()[0].place.find("s.toml, line 8"), std::string::npos) << s.rules()[0].place;
  EXPECT_EQ(s.rules()[1].rule.input, "N@data C");
  EXPECT_EQ(s.rules()[1].rule.weights, "F@y");
  EXPECT_EQ(s.rules()[1].rule.algorithm, "auto");
}

TEST(Strategy, PrintsWhatItReads) {
  const auto s = Strategy::parse(text, "s.toml");
  const auto again = Strategy::parse(s.print(), "again.toml");
  EXPECT_EQ(again.grid(), s.grid());
  EXPECT_TRUE(same_rules(s, again)) << s.print();
  EXPECT_EQ(again.print(), s.print());
  EXPECT_EQ(Strategy::parse(Strategy().print(), "").grid(), Grid());
  Strategy strange;
  strange.layer("a \"b\" \\\\ \n\t'c'", {.output = "\\\\"});  // refused only when the strategy is bound
  EXPECT_TRUE(same_rules(strange, Strategy::parse(strange.print(), ""))) << strange.print();
  EXPECT_EQ(Strategy::parse("", "").grid(), Grid());
}

TEST(Strategy, BuiltInCode) {
  Strategy s("data=2 y=2");
  s.layer("conv*", {.output = "N@data H@y"}).layer("fc", {.weights = "F"}, "main.cpp");
  EXPECT_EQ(s.rules()[0].place, "rule 1");
  EXPECT_EQ(s.rules()[1].place, "main.cpp");
  EXPECT_TRUE(same_rules(s, Strategy::parse(s.print(), "")));
  const auto moved = s.on(Grid::parse("data=4"));
  EXPECT_EQ(moved.grid().print(), "data=4");
  EXPECT_TRUE(same_rules(s, moved));
  expect_error([] { Strategy("data=0"); }, {"data=0"});
}

TEST(Strategy, TakesValuesAndEnumsBesideNames) {
  Model m("net");
  const Value x = m.input("x", {.channels = 4, .spatial = {8, 8}});
  const Value conv = m.conv("conv", x, {.filters = 4, .kernel = 3, .padding = 1});
  const Value fc = m.linear("fc", conv, {.features = 4});
  m.softmax_cross_entropy("loss", fc);
  Strategy typed("c=2"), written("c=2");
  typed.layer(x, {.output = "C@c"})
      .layer(conv, {.output = "C@c", .algorithm = Algorithm::stationary_y})
      .layer(fc, {.algorithm = AlgorithmName(Algorithm::summa_b, Algorithm::automatic, Algorithm::dot)})
      .schedule(ScheduleKind::one_f_one_b, 2);
  written.layer("x", {.output = "C@c"})
      .layer("conv", {.output = "C@c", .algorithm = "stationary-y"})
      .layer("fc", {.algorithm = "summa-b/auto/dot"})
      .schedule("1f1b", 2);
  EXPECT_EQ(typed.print(), written.print());
  EXPECT_TRUE(same_rules(typed, Strategy::parse(typed.print(), "")));
  const Plan plan = bind(m, typed, {.batch = 4, .optimizer = {}});
  EXPECT_EQ(plan.hash(), bind(m, written, {.batch = 4, .optimizer = {}}).hash());
  EXPECT_EQ(&plan.layer(conv), &plan.layer("conv"));
  EXPECT_EQ(plan.layer(conv)->at.algorithm, Algorithm::stationary_y);
  expect_error([&] { plan.layer("cnv"); }, {"'net' has no layer 'cnv'", "did you mean 'conv'", "'fc', 'loss'"});
}

TEST(Strategy, RefusesValuesOfOtherModels) {
  const auto net = [](const char* model, const char* layer) {
    Model m(model);
    const Value x = m.input("x", {.channels = 4, .spatial = {8, 8}});
    const Value fc = m.linear(layer, x, {.features = 4});
    m.softmax_cross_entropy("loss", fc);
    return std::pair(m, fc);
  };
  const auto [ours, fc] = net("ours", "fc");
  const Workload workload{.batch = 4, .optimizer = {}};
  EXPECT_NO_THROW(bind(ours, Strategy("c=2").layer(net("ours", "fc").second, {.output = "C@c"}), workload));
  const Plan plan = bind(ours, Strategy(), workload);
  for (const auto& other : {net("other", "fc").second, net("ours", "last").second, Value()}) {
    expect_error([&, &model = ours] { bind(model, Strategy("c=2").layer(other, {.output = "C@c"}), workload); },
                 {"rule 1", "is of another model", "give a value of 'ours'"});
    expect_error([&] { plan.layer(other); }, {"is of another model"});
    expect_error([&, model = ours]() mutable { model.relu("more", other); }, {"not a layer of this model"});
  }
}

TEST(Strategy, NamesEveryAlgorithmAndSchedule) {
  for (const char* known : {"auto", "stationary-x", "stationary-y", "stationary-w", "groups"})
    EXPECT_TRUE(algorithm_named(known)) << known;
  for (const Algorithm known : product_algorithms()) EXPECT_EQ(algorithm_named(name(known)), known);
  EXPECT_FALSE(algorithm_named("summa"));
  EXPECT_EQ(parse_schedule_kind("single"), ScheduleKind::single);
  for (const ScheduleKind kind : pipeline_kinds()) EXPECT_EQ(parse_schedule_kind(name(kind)), kind);
}

TEST(Strategy, MatchesGlobs) {
  const auto matches = [](const char* pattern, const char* name) {
    return Strategy::Rule{pattern, {}, ""}.matches(name);
  };
  EXPECT_TRUE(matches("*", "conv1"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("conv*", "conv"));
  EXPECT_TRUE(matches("*v?", "conv1"));
  EXPECT_TRUE(matches("c*n*1", "conv1"));
  EXPECT_TRUE(matches("conv1", "conv1"));
  EXPECT_FALSE(matches("conv1", "conv11"));
  EXPECT_FALSE(matches("conv?", "conv"));
  EXPECT_FALSE(matches("?", ""));
  EXPECT_FALSE(matches("", "conv"));
  EXPECT_TRUE(matches("*ab*b?", "aabaabbc"));
  EXPECT_FALSE(matches("*ab*b?", "aabaab"));
  EXPECT_TRUE(matches("a**", "a"));
  EXPECT_FALSE(
      // quickly, without exponential backtracking
      matches("********************************************************+", "block3.branch2.conv1"));
  EXPECT_TRUE((Strategy::Rule{"conv1", {}, ""}.exact()));
  EXPECT_FALSE((Strategy::Rule{"conv?", {}, ""}.exact()));
  EXPECT_FALSE((Strategy::Rule{"*", {}, ""}.exact()));
}

TEST(Strategy, RefusesWhatItCannotRead) {
  expect_refused("grid = ", {"s.toml, line 1"});
  expect_refused("\ngird = \"x=2\"", {"s.toml, line 2, column 1", "'gird'", "did you mean 'grid'?", "'schedule'"});
  expect_refused("grid = 4", {"s.toml, line 1", "'grid' must be a text"});
  expect_refused("grid = \"x=0\"", {"s.toml, line 1, column 8", "x=0"});
  expect_refused("layer = 1", {"s.toml, line 1", "[[layer]]"});
  expect_refused("layer = [1]", {"s.toml, line 1", "[[layer]]"});
  expect_refused("\n[[layer]]\noutput = \"N\"", {"s.toml, line 2", "needs match"});
  expect_refused("[[layer]]\nmatch = \"\"", {"needs match"});
  expect_refused("[[layer]]\nmatch = \"*\"\noutptu = \"N\"",
                 {"s.toml, line 3, column 1", "[[layer]] has no key 'outptu'", "did you mean 'output'?"});
  expect_refused("[[layer]]\nmatch = \"*\"\noutput = [\"N\"]", {"s.toml, line 3", "'output' must be a text"});
}

TEST(Strategy, ReadsItsSchedule) {
  const auto strategy = Strategy::parse("[schedule]\nkind = \"zb-h1\"\nmicrobatches = 8\n", "s.toml");
  EXPECT_EQ(strategy.schedule(), ScheduleKind::zb_h1);
  EXPECT_EQ(strategy.microbatches(), 8);
  EXPECT_EQ(Strategy::parse(strategy.print(), "").print(), strategy.print());
  EXPECT_EQ(Strategy::parse("[schedule]\nmicrobatches = 8\n", "").schedule(), ScheduleKind::one_f_one_b);
  EXPECT_EQ(Strategy::parse("[schedule]\nmicrobatches = 1\n", "").schedule(), ScheduleKind::single);
  expect_refused("schedule = \"single\"", {"[schedule]"});
  expect_refused("[schedule]\nkind = \"1f2b\"", {"s.toml, line 2", "'1f2b'", "did you mean '1f1b'?"});
  expect_refused("[schedule]\nkind = \"single\"\nmicrobatches = 8", {"s.toml, line 2", "one microbatch", "1f1b"});
  expect_refused("[schedule]\nmicrobatches = 0", {"s.toml, line 2", "1 to 65536"});
  expect_refused("[schedule]\nmicrobatches = 1.5", {"s.toml, line 2", "whole number"});
  expect_refused("[schedule]\nmicrobatch = 1", {"did you mean 'microbatches'?"});
  expect_refused("[[group]]\nlayers = []", {"s.toml, line 2", "first layer", "last layer"});
  for (const std::string one : {"\"a\"", "[\"a\"]"})
    expect_refused("[[group]]\nlayers = " + one,
                   {"s.toml, line 2", "a group's first and last", "for 'a' alone write layers = [\"a\", \"a\"]"});
  for (const std::string table : {"[[stages]]\nlayers = [\"a\", \"b\"]", "[stages]"})
    expect_refused(table, {"s.toml, line 1", "'stages' is a number", "written as [[group]]"});
}

TEST(Strategy, AnotherGridIsEveryStages) {
  Strategy strategy("data=2");
  strategy.group({"a", "b"}).group({"c", "d"});
  EXPECT_EQ(strategy.on(Grid::parse("y=3")).ranks(), 6);
  strategy.group({"e", "f", Grid::parse("c=2"), "s.toml, line 7"});
  EXPECT_EQ(error_of([&] { static_cast<void>(strategy.on(Grid::parse("y=3"))); }),
            "s.toml, line 7: the group has its own grid, \"c=2\", which \"y=3\" cannot replace; change it there");
}

TEST(Strategy, LoadsFiles) {
  expect_error([] { Strategy::load("/no/such/strategy.toml"); }, {"/no/such/strategy.toml", "cannot be read"});
  const std::string path = testing::TempDir() + "partita_strategy_test.toml";
  std::ofstream(path) << text;
  EXPECT_TRUE(same_rules(Strategy::load(path), Strategy::parse(text, "")));
  EXPECT_EQ(Strategy::load(path).file(), path);
  std::remove(path.c_str());
}

TEST(Strategy, AFolderIsNoStrategy) {
  expect_error([] { Strategy::load(testing::TempDir()); }, {"cannot be read"});
}

}  // namespace partita::test::strategy_test
