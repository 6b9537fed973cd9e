// The master test over MPI: drawn cases whose grid has as many ranks as were started.
#include "partita/comm/threads.hpp"
#include "support/master.hpp"
#include "support/mpi_world.hpp"

namespace partita::test {
namespace {

RankResult run_serially(const RandomCase& drawn) {
  RankResult result;
  run_threads(1, [&](Communicator& comm) { result = run_rank(drawn, Strategy(), comm, true); });
  return result;
}

TEST(MpiMaster, EveryStrategyTrainsToTheSerialResult) {
  const auto shared = mpi_world();
  Communicator& world = *shared;
  const int cases = std::getenv("PARTITA_LONG") == nullptr ? 12 : 200;
  int done = 0;
  for (std::uint64_t seed = 1; done < cases; ++seed) {
    const RandomCase drawn(seed);
    if (drawn.strategy.grid().size() != world.size()) continue;
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, drawn.print()));
    const RankResult mine = run_rank(drawn, drawn.strategy, world, true);
    expect_near_serial(drawn, mine, run_serially(drawn));
    expect_predicted(bind(drawn.model, drawn.strategy, workload_of(drawn)), world.rank(), mine);
    ++done;
  }
}

}  // namespace
}  // namespace partita::test
