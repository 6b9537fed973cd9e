// The master test on a device: every strategy trains on the test double of a device to the same result as one rank on
// the CPU, moves the predicted bytes, holds the predicted memory, and no two operations race. PARTITA_SEED=n runs only
// that case, PARTITA_CASES=n sets the number of cases.
#include "test/support/card.hpp"
#include "test/support/cases.hpp"
#include "test/support/lazy_backend.hpp"
#include "test/support/master.hpp"

namespace partita::test::device_master_test {

namespace {

/// A rank on the card of PARTITA_DEVICE, which all thread ranks share.
Processor card_processor(Communicator& threads) {
  const auto ranks = [&] { return make_device_threads(threads, *card(), std::chrono::seconds(60)); };
  return {*card(), ranks(), ranks(), make_cuda_backend(*card(), {.dtype = DType::f64})};
}

/// Every fifth case, messages pass through the memory of the CPU.
std::vector<RankResult> run_on_device(const RandomCase& drawn, unsigned seed, Outputs outputs) {
  const auto processor = seed % 5 == 0 ? staged_processor : lazy_processor;
  LazyDevice device(seed);
  std::vector<RankResult> results(static_cast<std::size_t>(drawn.strategy.ranks()));
  run_threads(drawn.strategy.ranks(), [&](Communicator& comm) {
    results[comm.rank()] =
        run_rank(drawn, drawn.strategy, comm, true, Weights::drawn, outputs, [&](Communicator& threads) {
          return card() != nullptr ? card_processor(threads) : processor(threads, device);
        });
  });
  device.check();
  EXPECT_EQ(device.blocks(), 0U) << "blocks of memory were not released";
  return results;
}

/// Expects what a rank holds beside its tensors to be counted.
void expect_counted(const Plan& plan, unsigned seed, const RankResult& result) {
  if (card() != nullptr) return;
  const bool staged = seed % 5 == 0;
  EXPECT_EQ(result.memory.each[MemoryClass::shared], staged || plan.ranks() == 1 ? 0 : 2 * lazy_room);
  if (plan.ranks() > 1) return;
  EXPECT_EQ(result.memory.each[MemoryClass::workspace],
            peak_memory(plan, 0).each[MemoryClass::workspace] + lazy_scratch_bytes);
}

bool check_case(std::uint64_t seed) {
  const RandomCase drawn(seed);
  SCOPED_TRACE(fmt::format("replay with PARTITA_SEED={}\n{}", seed, drawn.print()));
  try {
    const Plan plan = bind(drawn.model, drawn.strategy, workload_of(drawn));
    const auto ranks = run_on_device(drawn, static_cast<unsigned>(seed), Outputs::kept);
    const SerialResult serial = run_serially(drawn);
    bool conditioned = false;
    for (int rank = 0; rank < plan.ranks(); ++rank) {
      SCOPED_TRACE(fmt::format("rank {}", rank));
      conditioned |= expect_near_serial(drawn, ranks[rank], serial);
      expect_predicted(plan, rank, ranks[rank]);
    }
    if (seed % 4 != 0) return conditioned;
    // Passes are fused where outputs are released, and then round differently. So two such runs are compared.
    const auto order = static_cast<unsigned>(seed) + 1;
    const auto once = run_on_device(drawn, order, Outputs::released);
    const auto again = run_on_device(drawn, order + 1, Outputs::released);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      expect_predicted_memory(plan, static_cast<int>(r), once[r]);
      expect_counted(plan, order, once[r]);
      for (std::size_t i = 0; i < once[r].weights.size(); ++i)
        EXPECT_TRUE(same_bits(once[r].weights[i].tensor.local, again[r].weights[i].tensor.local))
            << "another order of operations differs in " << once[r].weights[i].name;
    }
    return conditioned;
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
    return false;
  }
}

}  // namespace

TEST(DeviceMaster, EveryStrategyTrainsToTheSerialResult) {
  if (const auto seed = number_from_environment("PARTITA_SEED", 0); seed != 0) {
    check_case(seed);
    return;
  }
  const std::uint64_t count = number_from_environment("PARTITA_CASES", lengthy() ? 2000 : sanitized ? 30 : 200);
  std::uint64_t magnifying = 0;
  for (std::uint64_t seed = 1; seed <= count && !HasFailure(); ++seed) magnifying += check_case(seed) ? 1 : 0;
  EXPECT_LE(magnifying, std::max<std::uint64_t>(count / 100, 1))
      << "cases whose bounds were widened to the effect of rounding";
}

}  // namespace partita::test::device_master_test
