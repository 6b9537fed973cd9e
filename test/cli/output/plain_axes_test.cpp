// Tests the names of axes in the files that `plan` writes.
#include "src/cli/output/plain_axes.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace partita::cli::plain_axes_test {
namespace {

using Rules = std::vector<std::pair<std::string, std::string>>;  // patterns of layers and their output layouts

Strategy made(const std::string& grid, const Rules& rules) {
  Strategy strategy(grid);
  for (const auto& [match, output] : rules) strategy.layer(match, {.output = output});
  return strategy;
}

void expect_plain(const Strategy& strategy, const std::string& grid, const std::vector<std::string>& outputs) {
  const Strategy plain = with_plain_axes(strategy);
  EXPECT_EQ(plain.grid().print(), grid);
  std::vector<std::string> found;
  for (const auto& each : plain.rules()) found.push_back(each.rule.output.value_or(""));
  EXPECT_EQ(found, outputs);
}

TEST(PlainAxes, AreCalledAfterWhatTheyCut) {
  expect_plain(made("x=2 y=3", {{"*", "H@x W@y"}}), "y=2 x=3", {"H@y W@x"});
  expect_plain(made("a=2 b=2", {{"conv*", "N@a H@b"}, {"fc", "N@a C@b"}}), "data=2 p=2", {"N@data H@p", "N@data C@p"});
  expect_plain(made("data=2 y=3", {{"*", "N@(data,y)"}}), "data=6", {"N@data"});
}

TEST(PlainAxes, OfVolumes) {
  expect_plain(made("data=2 y=2 x=3", {{"*", "N@data D@y H@x"}}), "data=2 z=2 y=3", {"N@data D@z H@y"});
  expect_plain(made("y=2 x=3 c=2", {{"*", "D@c H@y W@x"}}), "y=2 x=3 z=2", {"D@z H@y W@x"});
}

TEST(PlainAxes, ATakenNameHasANumber) {
  expect_plain(made("y=2 x=3", {{"conv*", "H@y"}, {"pool*", "H@x"}}), "y=2 y2=3", {"H@y", "H@y2"});
  expect_plain(made("a=2 data=3", {{"*", "N@a"}}), "data=2 data2=3", {"N@data"});
}

TEST(PlainAxes, UnusedOnesKeepTheirs) {
  expect_plain(made("data=2 u=3", {{"*", "N@data"}}), "data=2 u=3", {"N@data"});
  expect_plain(made("u=3 y=2", {{"fc", "C@y"}, {"*", ""}}), "u=3 c=2", {"C@c", ""});
}

TEST(PlainAxes, LayoutsOfInputsAndWeightsFollow) {
  Strategy strategy = made("a=2 b=3", {{"*", "N@a C@b"}});
  strategy.layer("fc", {.input = "N@(a,b)", .weights = "F@b C@a"});
  const Strategy plain = with_plain_axes(strategy);
  EXPECT_EQ(plain.grid().print(), "data=2 c=3");
  EXPECT_EQ(plain.rules()[1].rule.input, "N@(data,c)");
  EXPECT_EQ(plain.rules()[1].rule.weights, "F@c C@data");
  Strategy apart = made("a=2 b=3", {{"*", "N@(a,b)"}});
  apart.layer("fc", {.weights = "F@b"});
  EXPECT_EQ(with_plain_axes(apart).grid().axes(), 2) << "weights use one of the two alone";
}

TEST(PlainAxes, NothingElseChanges) {
  Strategy strategy = made("x=2", {{"*", "N@x"}});
  strategy.stages(4).schedule("1f1b", 8).optimizer_state(Strategy::OptimizerState::sharded).bucket_bytes(1 << 20);
  strategy.layer("conv*", {.recompute = true});
  Strategy expected = made("data=2", {{"*", "N@data"}});
  expected.stages(4).schedule("1f1b", 8).optimizer_state(Strategy::OptimizerState::sharded).bucket_bytes(1 << 20);
  expected.layer("conv*", {.recompute = true});
  EXPECT_EQ(with_plain_axes(strategy).print(), expected.print());
  Strategy named("x=2");
  named.layer("*", {.output = "N@x"}).group({"a", "b"}).group({"c", "d"});
  EXPECT_EQ(with_plain_axes(named).groups().size(), 2U);
}

}  // namespace
}  // namespace partita::cli::plain_axes_test
