// The master test: every strategy trains to the same result as one rank, whatever the layouts. The bytes it moves are
// those its plan predicted. Replicas and repeated runs agree bit for bit. Cases are drawn from seeds: PARTITA_SEED=n
// runs only that case, PARTITA_CASES=n sets the number of cases.
#include "test/support/master.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "src/comm/threads/threads.hpp"
#include "test/support/cases.hpp"

#include <gtest/gtest.h>

namespace partita::test::master_test {
namespace {

std::vector<RankResult> run_ranks(const RandomCase& drawn, const Strategy& strategy, bool overlap = true,
                                  Outputs outputs = Outputs::kept) {
  std::vector<RankResult> results(static_cast<std::size_t>(strategy.ranks()));
  run_threads(strategy.ranks(), [&](Communicator& comm) {
    results[comm.rank()] = run_rank(drawn, strategy, comm, overlap, Weights::drawn, outputs);
  });
  return results;
}

void expect_replicas_agree(const std::vector<RankResult>& ranks) {
  for (std::size_t r = 1; r < ranks.size(); ++r)
    for (std::size_t i = 0; i < ranks[r].weights.size(); ++i)
      for (std::size_t other = 0; other < r; ++other) {
        const auto& others = ranks[other].weights;  // another stage has other weights
        if (i >= others.size() || others[i].name != ranks[r].weights[i].name) continue;
        const auto &mine = ranks[r].weights[i].tensor.local, &theirs = ranks[other].weights[i].tensor.local;
        if (mine.box() == theirs.box()) {
          EXPECT_TRUE(same_bits(mine, theirs)) << ranks[r].weights[i].name << " on ranks " << other << " and " << r;
        }
      }
}

/// How often each algorithm was run, and each number of stages.
std::map<std::string, int> taken;

/// Checks one case. Returns whether rounding affects it more than the fixed bounds allow.
bool check_case(std::uint64_t seed) {
  const RandomCase drawn(seed);
  SCOPED_TRACE(fmt::format("replay with PARTITA_SEED={}\n{}", seed, drawn.print()));
  try {
    const SerialResult serial = run_serially(drawn);
    bool conditioned = false;
    const auto ranks = run_ranks(drawn, drawn.strategy);
    const Plan plan = bind(drawn.model, drawn.strategy, workload_of(drawn));
    if (plan.grids.size() > 1) ++taken["stages"];
    if (plan.stage_of_group.size() > plan.grids.size()) ++taken["two groups a stage"];
    if (plan.grids.size() > 1 && plan.microbatches > 2) ++taken["microbatches on stages"];
    for (const auto& layer : plan.layers) {
      ++taken[std::string(name(layer->at.algorithm))];
      if (layer->at.ring && layer->at.ring->balanced) ++taken["balanced ring"];
      if (layer.op->kind() == "combine") ++taken["experts"];
      if (layer.gathers_weights()) ++taken["weights in shards"];
      if (layer.gathers_weights()) ++taken[fmt::format("shards of {}", layer.op->kind())];
      if (layer.table >= 0) ++taken[layer.copies_table ? "copied tables" : "shared tables"];
      for (const auto& product : layer->at.products) ++taken[std::string(name(product.algorithm))];
      if (layer.op->kind() == "tables")
        for (const char cut : {'V', 'C', 'L'})
          if (layer->at.w[0].sharding(cut) != 0) ++taken[fmt::format("tables cut in {}", cut)];
    }
    for (int rank = 0; rank < plan.ranks(); ++rank) {
      SCOPED_TRACE(fmt::format("rank {}", rank));
      conditioned |= expect_near_serial(drawn, ranks[rank], serial);
      expect_predicted(plan, rank, ranks[rank]);
    }
    expect_replicas_agree(ranks);
    if (seed % 4 != 0) return conditioned;
    const auto again = run_ranks(drawn, drawn.strategy, true, Outputs::released);
    for (std::size_t r = 0; r < ranks.size(); ++r) expect_predicted_memory(plan, static_cast<int>(r), again[r]);
    for (std::size_t r = 0; r < ranks.size(); ++r)
      for (std::size_t i = 0; i < ranks[r].weights.size(); ++i)
        EXPECT_TRUE(same_bits(ranks[r].weights[i].tensor.local, again[r].weights[i].tensor.local))
            << "a second run differs in " << ranks[r].weights[i].name;
    const auto blocking = run_ranks(drawn, drawn.strategy, false);
    for (const auto& rank : blocking) conditioned |= expect_near_serial(drawn, rank, serial);
    return conditioned;
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
    return false;
  }
}

TEST(Master, EveryStrategyTrainsToTheSerialResult) {
  if (const auto seed = number_from_environment("PARTITA_SEED", 0); seed != 0) {
    check_case(seed);
    return;
  }
  const std::uint64_t count = number_from_environment("PARTITA_CASES", lengthy() ? 5000 : cases(300));
  std::uint64_t magnifying = 0;
  for (std::uint64_t seed = 1; seed <= count && !HasFailure(); ++seed) magnifying += check_case(seed) ? 1 : 0;
  std::vector<std::string> algorithms = names_of(product_algorithms());
  algorithms.insert(algorithms.end(), {"stationary-x", "stationary-y", "stationary-w", "groups", "stages",
                                       "two groups a stage", "microbatches on stages", "weights in shards"});
  // Runs of few cases, as under sanitizers, need not meet every kind.
  for (const auto& algorithm : algorithms)
    EXPECT_GE(taken[algorithm], static_cast<int>(count / 100)) << algorithm << " was hardly run";
  // Of sequences, and of tables, which one case in ten has.
  for (const char* algorithm : {"all-to-all", "ring", "balanced ring", "whole", "experts", "copied tables",
                                "shared tables", "tables cut in V", "tables cut in C", "tables cut in L"})
    EXPECT_GE(taken[algorithm], static_cast<int>(count / 300)) << algorithm << " was hardly run";
  RecordProperty("cases_that_magnify_rounding", static_cast<int>(magnifying));
  EXPECT_LE(magnifying, std::max<std::uint64_t>(count / 100, 1))
      << "cases whose bounds were widened to the effect of rounding";
}

}  // namespace
}  // namespace partita::test::master_test
