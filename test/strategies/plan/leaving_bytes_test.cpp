// What leaves a node, by hand and against what each rank sends.
#include "partita/strategies/plan/leaving_bytes.hpp"

#include "partita/strategies/plan/traffic.hpp"
#include "test/strategies/cost/priced.hpp"

#include <gtest/gtest.h>

namespace partita::test::leaving_bytes_test {

namespace {

std::string print(const std::vector<LeavingBytes>& all) {
  std::string text;
  for (const auto& [along, bytes] : all) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", along, bytes);
  return text;
}

double total(const std::vector<LeavingBytes>& all) {
  double sum = 0;
  for (const auto& each : all) sum += each.bytes;
  return sum;
}

}  // namespace

// The bucket of gradients has 1280 bytes (traffic_test.cpp) and the loss 16: over two nodes a node sends 2 * 1/2 of
// that. Each rank has 2 samples, with 16 floats in a row of a's input and 32 in a row of b's input and of its gradient.
TEST(LeavingBytes, TheLastAxisLiesInsideANode) {
  const Plan inside = bound(two_convolutions(), all_as("data=2 y=2", "N@data H@y"), 4);
  EXPECT_EQ(print(leaving_bytes(inside, 0, 2)), "data,y 1296");
  const Plan across = bound(two_convolutions(), all_as("y=2 data=2", "N@data H@y"), 4);
  EXPECT_EQ(print(leaving_bytes(across, 3, 2)), fmt::format("y,data 1296, y {}", 2 * 2 * (16 + 32 + 32) * 4));
}

// A node of 3 has 3 ranks of the group, the other 1: both are a half of the two nodes.
TEST(LeavingBytes, NodesNeedNotBeFull) {
  const Plan plan = bound(two_convolutions(), all_as("data=4", "N@data"), 4);
  EXPECT_EQ(print(leaving_bytes(plan, 0, 3)), "data 1296");
  EXPECT_EQ(print(leaving_bytes(plan, 3, 3)), "data 1296");
}

TEST(LeavingBytes, StagesSendAcrossNodes) {
  Strategy strategy("data=2");
  strategy.layer("*", {.output = "N@data"});
  const Plan plan = bound(two_convolutions(), strategy.group({"in", "a"}).group({"b", "loss"}).schedule("gpipe", 2), 4);
  const double image = 8 * 8 * 4 * 4;  // bytes of a's output
  EXPECT_EQ(print(leaving_bytes(plan, 0, 2)), fmt::format("stages {}", 4 * image + 16));
  EXPECT_EQ(total(leaving_bytes(plan, 0, 4)), 0);
}

// With chimera each stage has a replica of every layer: rank 0 sums 1280 bytes of gradients with rank 2, and 1 with
// 3. Each rank sends the output of an image, and its gradient, to the same peer.
TEST(LeavingBytes, ReplicasSumAcrossNodes) {
  Strategy strategy("data=2");
  strategy.layer("*", {.output = "N@data"});
  const Plan plan =
      bound(two_convolutions(), strategy.group({"in", "a"}).group({"b", "loss"}).schedule("chimera", 2), 4);
  const int image = 8 * 8 * 4 * 4;  // bytes
  EXPECT_EQ(print(leaving_bytes(plan, 0, 2)), fmt::format("stages {}", 2 * (2 * image + 1280) + 16));
  // Of three ranks in a node, rank 1 has its peer outside, and rank 2 the other rank of its stage.
  EXPECT_EQ(print(leaving_bytes(plan, 0, 3)), fmt::format("stages {}, data 1296", 2 * image + 1280 + 16));
}

TEST(LeavingBytes, OfANodeOfOneRankAreWhatItSends) {
  for (const auto& [grid, output] : std::initializer_list<std::pair<const char*, const char*>>{
           {"data=2 y=3", "N@data H@y"}, {"c=3 data=2", "N@data C@c"}, {"x=2 y=2", "H@y W@x"}}) {
    const Plan plan = bound(two_convolutions(), all_as(grid, output), 5);
    for (int rank = 0; rank < plan.ranks(); ++rank)
      EXPECT_NEAR(total(leaving_bytes(plan, rank, 1)), rank_traffic(plan, rank).sent, 1e-9) << grid << ' ' << rank;
    EXPECT_TRUE(leaving_bytes(plan, 0, plan.ranks()).empty());
  }
}

}  // namespace partita::test::leaving_bytes_test
