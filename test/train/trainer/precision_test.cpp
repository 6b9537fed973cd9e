// Short types: the first losses on several ranks are near those of one rank, and near those in f64.
#include "partita/model/builtin/builtin.hpp"
#include "partita/train/trainer/trainer.hpp"
#include "src/comm/threads/threads.hpp"

#include <gtest/gtest.h>

#include <numeric>

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

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance * std::abs(b[i])) << "step " << i;
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

Model of_attention(bool causal) {
  Model m("attention");
  Value t = m.linear("qkv", m.input("in", {.channels = 3, .length = 14}), {.features = 24, .per_place = true});
  t = m.attention("attention", t, {.heads = 4, .groups = 2, .causal = causal});
  m.softmax_cross_entropy("loss", m.linear("fc", t, {.features = 10}));
  return m;
}

// What comes around a ring is added in the type of sums. The trainer compares messages and bytes with the prediction.
TEST(Precision, ARingAddsInTheTypeOfSums) {
  Strategy ring("l=4");
  ring.layer("*", {.output = "L@l"}).layer("attention", {.algorithm = Algorithm::ring});
  const auto of = [](const Strategy& strategy, DType dtype, bool causal) {
    return losses(strategy, dtype, "reference", of_attention(causal), {{'C', 3}, {'L', 14}});
  };
  for (const bool causal : {true, false}) {
    SCOPED_TRACE(causal ? "causal" : "full");
    const auto exact = of(Strategy(), DType::f64, causal);
    expect_near(of(ring, DType::f64, causal), exact, 1e-12);
    expect_near(of(ring, DType::f32, causal), exact, 1e-5);
    for (const DType dtype : {DType::bf16, DType::f16}) expect_near(of(ring, dtype, causal), exact, 0.02);
  }
}

}  // namespace
}  // namespace partita::test::precision_test
