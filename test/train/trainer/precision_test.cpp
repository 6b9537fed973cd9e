// Short types: the first losses on several ranks are near those of one rank, and near those in f64.
#include "partita/model/builtin/builtin.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/train/trainer/trainer.hpp"
#include "src/comm/threads/threads.hpp"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string_view>
#include <utility>

namespace partita::test::precision_test {
namespace {

std::vector<double> losses(const Strategy& strategy, DType dtype, const std::string& backend,
                           const Model& model = fashion_cnn(), const Shape& sample = {{'C', 1}, {'H', 28}, {'W', 28}}) {
  std::vector<double> losses;
  run_threads(strategy.grid().size(), [&](Communicator& comm) {
    const auto data = make_synthetic(sample, {}, 100, 10, 1, 0);
    TrainerOptions options;
    options.check_replicas = 1;
    options.batch = 21;
    options.dtype = dtype;
    options.backend = backend;
    options.optimizer.rate = 0.01;
    Trainer trainer(model, strategy, options, comm);
    std::vector<Index> samples(21);
    for (Index step = 0; step < 3; ++step) {
      std::iota(samples.begin(), samples.end(), step * 21);
      data->hold(samples, Box(data->sample()));
      const double loss = trainer.step(*data, samples).loss;
      if (comm.rank() == 0) losses.push_back(loss);
    }
    EXPECT_TRUE(trainer.predicted() == trainer.measured()) << name(dtype) << " on rank " << comm.rank();
  });
  return losses;
}

Strategy hybrid() {
  Strategy strategy("data=2 y=2");
  strategy.layer("*", {.output = "N@data H@y"});
  return strategy;
}

/// Losses below `least` are compared as if they were so large.
void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance, double least = 0) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], b[i], tolerance * std::max(std::abs(b[i]), least)) << "step " << i;
}

TEST(Precision, SingleAgreesToItsRounding) {
  for (const std::string backend : {"reference", "auto"}) {
    SCOPED_TRACE(backend);
    const auto serial = losses(Strategy(), DType::f32, backend);
    expect_near(losses(hybrid(), DType::f32, backend), serial, 1e-5);
    expect_near(serial, losses(Strategy(), DType::f64, "reference"), 1e-5);
  }
}

TEST(Precision, HalfPrecisionsWithMastersInSingleFollow) {
  const auto exact = losses(Strategy(), DType::f64, "reference");
  for (const DType dtype : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(name(dtype));
    expect_near(losses(Strategy(), dtype, "reference"), exact, 0.05);
    expect_near(losses(hybrid(), dtype, "reference"), exact, 0.05);
  }
}

Model of_attention(const Attention& attention, Index length = 14) {
  Model m("attention");
  const Index features = 3 * (attention.heads + 2 * attention.groups);
  Value t =
      m.linear("qkv", m.input("in", {.channels = 3, .length = length}), {.features = features, .per_place = true});
  t = m.attention("attention", t, attention);
  m.softmax_cross_entropy("loss", m.linear("fc", t, {.features = 10}));
  return m;
}

// What comes around a ring is added in the type of sums. The trainer compares messages and bytes with the prediction.
TEST(Precision, ARingAddsInTheTypeOfSums) {
  Strategy ring("l=4");
  ring.layer("*", {.output = "L@l"}).layer("attention", {.algorithm = Algorithm::ring});
  const auto of = [](const Strategy& strategy, DType dtype, bool causal) {
    const Attention attention{.heads = 4, .groups = 2, .causal = causal};
    return losses(strategy, dtype, "reference", of_attention(attention), {{'C', 3}, {'L', 14}});
  };
  for (const bool causal : {true, false}) {
    SCOPED_TRACE(causal ? "causal" : "full");
    const auto exact = of(Strategy(), DType::f64, causal);
    expect_near(of(ring, DType::f64, causal), exact, 1e-12);
    expect_near(of(ring, DType::f32, causal), exact, 1e-5);
    for (const DType dtype : {DType::bf16, DType::f16}) expect_near(of(ring, dtype, causal), exact, 0.02);
  }
}

// With many heads for each key, or few places, a causal ring is not balanced. Some ranks have no places, others one.
TEST(Precision, BothCausalRingsFollowOneRank) {
  std::map<bool, int> taken;  // by whether the ring is balanced
  for (const auto& [grid, layout] :
       {std::pair("l=2", "L@l"), std::pair("l=3", "L@l"), std::pair("l=4", "L@l"), std::pair("l=5", "L@l"),
        std::pair("l=7", "L@l"), std::pair("n=2 l=3", "N@n L@l"), std::pair("c=2 l=4", "C@c L@l")})
    for (const Index length : {3, std::string_view(grid) == "l=2" ? 400 : 14})
      for (const auto& [heads, groups] : {std::pair(4, 4), std::pair(24, 2)}) {
        SCOPED_TRACE(fmt::format("{}, {} places, {} heads, {} groups", grid, length, heads, groups));
        const Model model = of_attention({.heads = heads, .groups = groups, .causal = true}, length);
        Strategy ring(grid);
        ring.layer("*", {.output = layout[0] == 'N' ? layout : "L@l"});
        ring.layer("attention", {.output = layout, .algorithm = Algorithm::ring});
        ++taken[bind(model, ring, {.batch = 21, .optimizer = {}}).layer("attention")->at.ring->balanced];
        const auto of = [&](const Strategy& strategy, DType dtype) {
          return losses(strategy, dtype, "reference", model, {{'C', 3}, {'L', length}});
        };
        const auto exact = of(Strategy(), DType::f64);
        expect_near(of(ring, DType::f64), exact, 1e-12);
        // Of 400 places, the loss is 2e-5 after two steps: a difference of scores that bf16 rounds.
        expect_near(of(ring, DType::bf16), exact, 0.02, 0.01);
      }
  EXPECT_GE(taken[true], 10);
  EXPECT_GE(taken[false], 10);
}

// The trainer compares messages, bytes and memory with the prediction.
TEST(Precision, ExpertsOverRanksFollowOneRank) {
  const Experts experts{.experts = 8, .chosen = 2, .capacity = 1, .normalized = true, .balance = 0.5};
  Model m("experts");
  const Value x = m.linear("in", m.input("image", {.channels = 3, .length = 14}), {.features = 8, .per_place = true});
  const Value scores = m.linear("router", x, {.features = 8, .per_place = true});
  Value t =
      m.linear("experts", m.dispatch("dispatch", x, scores, experts), {.features = 48, .per_place = true, .groups = 8});
  t = m.combine("combine", scores, m.gelu("experts_gelu", t), experts);
  m.softmax_cross_entropy("loss", m.linear("fc", t, {.features = 10}));
  Strategy cut("data=4");
  cut.layer("*", {.output = "N@data"}).layer("experts*", {.output = "C@data"});
  const auto of = [&](const Strategy& strategy, DType dtype) {
    return losses(strategy, dtype, "reference", m, {{'C', 3}, {'L', 14}});
  };
  const auto exact = of(Strategy(), DType::f64);
  expect_near(of(cut, DType::f64), exact, 1e-12);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(name(dtype));
    const auto serial = of(Strategy(), dtype);
    expect_near(of(cut, dtype), serial, dtype == DType::f32 ? 1e-5 : 0.02);
    expect_near(serial, exact, dtype == DType::f32 ? 1e-5 : 0.05);
  }
}

}  // namespace
}  // namespace partita::test::precision_test
