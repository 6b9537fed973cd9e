// The master test over MPI: random cases whose grid has as many ranks as were started.
#include "partita/strategies/plan/bind.hpp"
#include "src/comm/delaying.hpp"
#include "test/support/cases.hpp"
#include "test/support/mpi_world.hpp"
#include "test/support/replicas.hpp"

#include <unistd.h>

#include <filesystem>

namespace partita::test {
namespace {

/// Replicas are equal to the last bit: over each group, the largest and the smallest hash are equal.
void expect_replicas_agree(const RankResult& mine, Communicator& world) {
  std::map<AxisSet, std::shared_ptr<Communicator>> groups;
  for (const auto& [name, tensor] : mine.weights) {
    const Grid& grid = tensor.layout.grid();
    auto& replicas = groups[tensor.layout.replicated()];
    if (!replicas) replicas = world.split(grid.group(world.rank(), tensor.layout.replicated()).front(), world.rank());
    const std::string_view bytes(reinterpret_cast<const char*>(tensor.local.data()),
                                 static_cast<std::size_t>(tensor.local.bytes()));
    const auto low = static_cast<double>(hash_text(bytes) & 0xFFFFFFFFU);
    double extremes[2]{low, -low};
    replicas->all_reduce(extremes, 2, DType::f64, ReduceOp::max, {}).wait();
    EXPECT_EQ(extremes[0], -extremes[1]) << name << " differs between replicas";
  }
}

void expect_same_bits(const RankResult& mine, const RankResult& again) {
  for (std::size_t i = 0; i < mine.weights.size(); ++i)
    EXPECT_TRUE(same_bits(mine.weights[i].tensor.local, again.weights[i].tensor.local))
        << "a second run differs in " << mine.weights[i].name;
}

TEST(MpiMaster, EveryStrategyTrainsToTheSerialResult) {
  const auto shared = mpi_world();
  Communicator& world = *shared;
  const int wanted = lengthy() ? 200 : 12;
  const char* replay = std::getenv("PARTITA_SEED");
  int done = 0, magnifying = 0;
  for (std::uint64_t seed = number_from_environment("PARTITA_SEED", 1); done < wanted; ++seed) {
    if (replay != nullptr && done > 0) break;
    const RandomCase drawn(seed);
    if (drawn.strategy.ranks() != world.size()) continue;
    SCOPED_TRACE(fmt::format("replay with PARTITA_SEED={}\n{}", seed, drawn.print()));
    // Delays of zero, but with it ranks of one node also compute while their messages travel.
    const auto network = done % 2 == 0 ? shared : delaying(shared, {});
    const RankResult mine = run_rank(drawn, drawn.strategy, *network, true);
    magnifying += expect_near_serial(drawn, mine, run_serially(drawn)) ? 1 : 0;
    expect_predicted(bind(drawn.model, drawn.strategy, workload_of(drawn)), world.rank(), mine);
    if (drawn.strategy.groups().empty()) expect_replicas_agree(mine, world);
    if (done % 4 == 0) expect_same_bits(mine, run_rank(drawn, drawn.strategy, world, true));
    ++done;
  }
  EXPECT_LE(magnifying, wanted / 100) << "cases whose bounds were widened to the effect of rounding";
}

// As Replicas.StayEqualInMemoryThatRanksShare.
TEST(MpiMaster, ReplicasOfWideLayersStayEqual) {
  const auto shared = mpi_world();
  Communicator& world = *shared;
  std::int32_t process = getpid();
  world.broadcast(&process, 1, DType::i32, 0, {}).wait();
  const auto path = std::filesystem::temp_directory_path() / fmt::format("partita_replicas_{}.h5", process);
  const int wanted = lengthy() ? 300 : 12;
  int done = 0;
  for (std::uint64_t seed = 1; done < wanted; ++seed) {
    const RandomCase drawn(seed, wide);
    if (drawn.strategy.ranks() != world.size()) continue;
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, drawn.print()));
    train_and_compare(seed, drawn, world, path.string());
    ++done;
  }
  if (world.rank() == 0) std::filesystem::remove(path);
}

}  // namespace
}  // namespace partita::test
