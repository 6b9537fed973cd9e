// Batch normalization with local statistics: every rank normalizes by its own samples, as a serial run over these alone
// would. Running statistics are the mean over ranks and equal on all of them. Traffic is as predicted.
#include "partita/strategies/plan/bind.hpp"
#include "src/comm/threads/threads.hpp"
#include "test/support/error_of.hpp"
#include "test/support/master.hpp"

#include <gtest/gtest.h>

namespace partita::test::statistics_test {
namespace {

constexpr Index samples = 5;

RandomCase local_norm(const char* grid, const char* layout = "N@a",
                      const BatchNorm& norm = {.statistics = Statistics::local}) {
  RandomCase drawn(1);
  drawn.batch = samples;
  drawn.optimizer = {.rate = 0.1};
  drawn.strategy = Strategy(grid);
  drawn.strategy.layer("*", {.output = layout});
  drawn.model = Model("local");
  Value t = drawn.model.input("in", {.channels = 2, .spatial = {3, 2}});
  t = drawn.model.batch_norm("bn", t, norm);
  drawn.model.softmax_cross_entropy("loss", drawn.model.linear("fc", t, {.features = 3}));
  return drawn;
}

Tensor weight_of(const RankResult& result, const std::string& name) {
  for (const auto& [found, tensor] : result.weights)
    if (found == name) return tensor.local;
  broken("no such weight");
}

TEST(LocalStatistics, AreThoseOfTheRanksOwnSamples) {
  const RandomCase drawn = local_norm("a=2");
  std::vector<RankResult> ranks(2);
  run_threads(2, [&](Communicator& comm) { ranks[comm.rank()] = run_rank(drawn, drawn.strategy, comm, true); });
  const Plan plan = bind(drawn.model, drawn.strategy, workload_of(drawn));
  for (int rank = 0; rank < 2; ++rank) {
    const auto& mine = ranks[rank];
    expect_predicted(plan, rank, mine);
    const Tensor& y = mine.outputs[1];  // scale and shift changed a little: normalized up to an affine map per channel
    const Tensor& x = mine.outputs[0];
    const Tensor scale = weight_of(mine, "bn/scale"), shift = weight_of(mine, "bn/shift");
    for (Index c = 0; c < 2; ++c) {
      double mean = 0, square = 0, count = 0;
      const auto each = [&](auto&& f) {
        for (Index n = x.box()[0].lo; n < x.box()[0].hi; ++n)
          for (Index h = 0; h < 3; ++h)
            for (Index w = 0; w < 2; ++w) f(std::array<Index, max_dims>{n, c, h, w});
      };
      each([&](const auto& at) { mean += x.at(at), ++count; });
      mean /= count;
      each([&](const auto& at) { square += (x.at(at) - mean) * (x.at(at) - mean); });
      const double deviation = std::sqrt(square / count + 1e-5);
      // y = scale (x - mean)/deviation + shift for the step's scale and shift: two points determine them, the others
      // must fit.
      const std::array<Index, max_dims> first{x.box()[0].lo, c, 0, 0}, second{x.box()[0].lo, c, 2, 1};
      const auto normal = [&](const auto& at) { return (x.at(at) - mean) / deviation; };
      const double a = (y.at(second) - y.at(first)) / (normal(second) - normal(first));
      const double b = y.at(first) - a * normal(first);
      each([&](const auto& at) { EXPECT_NEAR(y.at(at), a * normal(at) + b, 1e-9); });
      EXPECT_NEAR(a, 1, 0.5);
      EXPECT_NEAR(b, shift.get(c), 0.5) << scale.get(c);
      double sum = 0;
      each([&](const auto& at) { sum += y.at(at); });
      EXPECT_NEAR(sum / count, b, 1e-9) << "centered on the rank's own samples";
    }
  }
  for (const char* name : {"bn/running_mean", "bn/running_variance", "bn/scale", "fc/weight"})
    EXPECT_TRUE(same_bits(weight_of(ranks[0], name), weight_of(ranks[1], name))) << name;
}

TEST(LocalStatistics, OnOneRankAreTheGlobalOnes) {
  RandomCase drawn = local_norm("a=1");
  RankResult local, global;
  run_threads(1, [&](Communicator& comm) { local = run_rank(drawn, drawn.strategy, comm, true); });
  Model model("local");
  Value t = model.input("in", {.channels = 2, .spatial = {3, 2}});
  t = model.batch_norm("bn", t);
  model.softmax_cross_entropy("loss", model.linear("fc", t, {.features = 3}));
  drawn.model = model;
  run_threads(1, [&](Communicator& comm) { global = run_rank(drawn, drawn.strategy, comm, true); });
  EXPECT_EQ(local.losses, global.losses);
}

std::vector<RankResult> run(const RandomCase& drawn) {
  std::vector<RankResult> ranks(static_cast<std::size_t>(drawn.strategy.ranks()));
  run_threads(drawn.strategy.ranks(),
              [&](Communicator& comm) { ranks[comm.rank()] = run_rank(drawn, drawn.strategy, comm, true); });
  const Plan plan = bind(drawn.model, drawn.strategy, workload_of(drawn));
  for (int rank = 0; rank < plan.ranks(); ++rank) expect_predicted(plan, rank, ranks[rank]);
  return ranks;
}

// With statistics along b only, the ranks of a's halves share rows of the same samples: like local statistics of two
// ranks with whole samples.
TEST(StatisticsAlong, SomeAxesAreLocalToTheOthers) {
  const auto along = run(local_norm("a=2 b=2", "N@a H@b", {.statistics = Statistics::along, .axes = {"b"}}));
  const auto local = run(local_norm("a=2"));
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_LT(difference(along[rank].outputs[1], local[rank / 2].outputs[1], 1e-3), 1e-12);
    for (const char* name : {"bn/running_mean", "bn/running_variance", "bn/scale", "fc/weight"})
      EXPECT_LT(difference(weight_of(along[rank], name), weight_of(local[rank / 2], name), 1e-3), 1e-12) << name;
  }
}

TEST(StatisticsAlong, AllAxesAreGlobal) {
  const auto along = run(local_norm("a=2 b=2", "N@a H@b", {.statistics = Statistics::along, .axes = {"a", "b"}}));
  const auto global = run(local_norm("a=2 b=2", "N@a H@b", {}));
  EXPECT_EQ(along[3].losses, global[3].losses);
}

// Two neighbors of a grid of "a=2 b=2" lie along b.
TEST(StatisticsOfRanks, AreThoseOfNeighbors) {
  const auto of = [](int ranks) {
    return run(local_norm("a=2 b=2", "N@a H@b", {.statistics = Statistics::ranks, .ranks = ranks}));
  };
  EXPECT_EQ(of(2)[0].losses,
            run(local_norm("a=2 b=2", "N@a H@b", {.statistics = Statistics::along, .axes = {"b"}}))[0].losses);
  EXPECT_EQ(of(1)[0].losses, run(local_norm("a=2 b=2", "N@a H@b", {.statistics = Statistics::local}))[0].losses);
  for (const int ranks : {4, 5, 100})
    EXPECT_EQ(of(ranks)[0].losses, run(local_norm("a=2 b=2", "N@a H@b", {}))[0].losses) << ranks;
}

TEST(StatisticsOfRanks, ANumberThatNoAxesHaveIsRefused) {
  const auto bound = [](const char* grid, int ranks) {
    const auto drawn = local_norm(grid, "N@a H@b", {.statistics = Statistics::ranks, .ranks = ranks});
    bind(drawn.model, drawn.strategy, workload_of(drawn));
  };
  expect_error([&] { bound("a=3 b=2", 3); },
               {"layer 'bn'", "groups of 3 ranks", "\"a=3 b=2\"", "have 2, 6 ranks together"});
  expect_error([&] { bound("a=3 b=2", 0); }, {"layer 'bn'", "among 0 ranks"});
  EXPECT_NO_THROW(bound("a=3 b=2", 2));
}

TEST(StatisticsAlong, AnAxisThatTheGridLacksIsNamed) {
  const auto drawn = local_norm("a=2 b=2", "N@a", {.statistics = Statistics::along, .axes = {"c"}});
  const auto bound = [&](const Strategy& strategy) { return bind(drawn.model, strategy, workload_of(drawn)); };
  expect_error([&] { bound(drawn.strategy); }, {"layer 'bn'", "along axis 'c'", "\"a=2 b=2\""});
  EXPECT_NO_THROW(bound(Strategy())) << "one rank has all samples";
}

}  // namespace
}  // namespace partita::test::statistics_test
