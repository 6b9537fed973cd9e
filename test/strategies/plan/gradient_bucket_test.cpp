#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/plan.hpp"

#include <gtest/gtest.h>

namespace partita::gradient_bucket_test {
namespace {

/// Returns the buckets of a chain of linear layers without biases as text, e.g. "l2 l3 | l0 l1". `features` are the
/// numbers of output features, `limit` is in bytes.
std::string buckets(const std::vector<Index>& features, Index limit, const std::string& rules = "N@a") {
  Model m("chain");
  Value t = m.input("x", {.channels = 8, .spatial = {1, 1}});
  for (std::size_t i = 0; i < features.size(); ++i)
    t = m.linear(fmt::format("l{}", i), t, {.features = features[i], .bias = false});
  m.softmax_cross_entropy("loss", t);
  Strategy s("a=2");
  s.layer("*", {.output = rules});
  s.bucket_bytes(limit);
  const Plan plan = bind(m, s, {.batch = 4, .dtype = DType::f32, .training = true, .optimizer = {}});
  std::string text;
  for (const auto& bucket : plan.buckets) {
    if (!text.empty()) text += " | ";
    for (std::size_t i = 0; i < bucket.entries.size(); ++i)
      text += fmt::format("{}{}", i == 0 ? "" : " ", plan.layers[bucket.entries[i].layer].name);
  }
  return text;
}

TEST(Bucket, LimitsDoubleFromTheLastToTheFirst) {
  // Each weight has 8 x 8 floats: 256 bytes. The caps from the end of backward are 256, 512, 1024, 2048, 4096, 4096.
  EXPECT_EQ(buckets(std::vector<Index>(9, 8), 4096), "l7 l8 | l3 l4 l5 l6 | l1 l2 | l0");
  EXPECT_EQ(buckets(std::vector<Index>(4, 8), Index{1} << 20), "l0 l1 l2 l3");
}

TEST(Bucket, AWeightAboveTheLimitIsAlone) { EXPECT_EQ(buckets({8, 100, 8}, 1), "l2 | l1 | l0"); }

TEST(Bucket, SumsOverOtherAxesAreApart) {
  EXPECT_EQ(buckets({8, 8, 8}, Index{1} << 20, "C@a"), "l0 l1 l2") << "nothing to sum, but all have the same sharding";
  Model m("two");
  Value t = m.linear("l0", m.input("x", {.channels = 8, .spatial = {1, 1}}), {.features = 8, .bias = false});
  t = m.linear("l1", t, {.features = 8, .bias = false});
  m.softmax_cross_entropy("loss", t);
  Strategy s("a=2 b=2");
  s.layer("*", {.output = "N@a"}).layer("l1", {.output = "N@(a,b)"});
  const Plan plan = bind(m, s, {.batch = 4, .dtype = DType::f32, .training = true, .optimizer = {}});
  ASSERT_EQ(plan.buckets.size(), 2U);
  EXPECT_EQ(plan.grid().print(plan.buckets[0].axes), "(a,b)") << "backward completes l1 first";
  EXPECT_EQ(plan.grid().print(plan.buckets[1].axes), "(a)");
}

// The replicas of an element lie at the same place of buffers of equal length only if all weights are cut alike. A sum
// whose order depends on the place then treats them alike.
TEST(Bucket, WeightsThatAreCutInOtherWaysAreApart) {
  Model m("two");
  Value t = m.linear("l0", m.input("x", {.channels = 8, .spatial = {1, 1}}), {.features = 8, .bias = false});
  t = m.linear("l1", t, {.features = 8, .bias = false});
  m.softmax_cross_entropy("loss", t);
  Strategy s("a=2 b=2");
  s.layer("*", {.output = "N@a"}).layer("l1", {.output = "N@a C@b", .weights = "F@b C"});
  for (const Method method : {Method::sgd, Method::adam, Method::lamb}) {
    const Plan plan = bind(m, s, {.batch = 4, .dtype = DType::f32, .training = true, .optimizer = {.method = method}});
    ASSERT_EQ(plan.buckets.size(), 2U) << name(method);
    for (const auto& bucket : plan.buckets) EXPECT_EQ(plan.grid().print(bucket.axes), "(a)") << "both add over a";
    EXPECT_NE(plan.buckets[0].sharding, plan.buckets[1].sharding);
  }
}

TEST(Bucket, SharesCoverABucketOnce) {
  const auto model = builtin_model("fashion-cnn");
  Strategy s("data=3 y=2");
  s.layer("*", {.output = "N@data H@y"}).optimizer_state(Strategy::OptimizerState::sharded);
  const Plan plan = bind(model, s, {.batch = 4, .dtype = DType::f32, .training = true, .optimizer = {}});
  for (const auto& bucket : plan.buckets) {
    Index at = 0;
    for (const int rank : plan.grid().group(0, bucket.axes)) {
      EXPECT_EQ(plan.share(bucket, rank).lo, at);
      at = plan.share(bucket, rank).hi;
    }
    EXPECT_EQ(at, plan.offsets(bucket, 0).back());
  }
}

}  // namespace
}  // namespace partita::gradient_bucket_test
