#include "partita/comm/mpi.hpp"

#include "partita/base/error.hpp"
#include "src/comm/mpi/mpi_limits.hpp"
#include "src/comm/shared_memory/between_processes.hpp"
#include "test/support/collectives.hpp"
#include "test/support/mpi_world.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <climits>
#include <filesystem>
#include <fstream>
#include <utility>

using namespace partita;
using namespace partita::test;

TEST(Mpi, EveryVerbAgreesWithArithmetic) { check_transport(*mpi_world()); }

TEST(Mpi, SplitsOfSplits) {
  const auto world = mpi_world();
  auto comm = world;
  for (int depth = 0; depth < 3; ++depth) {
    comm = comm->split(comm->rank() * 2 / comm->size(), comm->rank());
    check_transport(*comm);
  }
}

TEST(Mpi, ErrorsCarryTheTextOfMpi) {
  const auto world = mpi_world();
  const std::vector<double> data(4);
  std::vector<double> too_short(1);
  if (world->rank() == 0 && world->size() > 1) {
    const Send send{1, bytes(data)};
    world->exchange({&send, 1}, {}, {}).wait();
  }
  if (world->rank() == 1) {
    const Recv recv{0, writable(too_short)};
    try {
      world->exchange({}, {&recv, 1}, {}).wait();
      ADD_FAILURE() << "a truncated message went unnoticed";
    } catch (const CommunicationError& e) {
      EXPECT_NE(std::string(e.what()).find("truncated"), std::string::npos) << e.what();
    }
  }
}

/// MPI counts in int. More elements travel in pieces; here more than two count as too many. Ranks with shared memory
/// use MPI for some of this only; the test also runs without shared memory.
TEST(Mpi, MoreElementsThanMpiCounts) {
  const Index usual = std::exchange(most_mpi_elements, 2);
  check_all_gather(*mpi_world());
  check_reduce_scatter(*mpi_world());
  check_broadcast(*mpi_world());
  check_all_to_all(*mpi_world());
  check_exchange(*mpi_world());
  most_mpi_elements = usual;
}

/// MPI adds up counts in int too, so its own limit is lower for blocks than for one message.
TEST(Mpi, OneCallMovesNoMoreThanMpiCounts) { EXPECT_LE(most_mpi_elements, Index{INT_MAX}); }

/// Enough pieces in shared memory that some of them bypass the caches and some do not.
TEST(Mpi, SumsOfPiecesStoredEitherWay) {
  const auto world = mpi_world();
  const int p = world->size(), me = world->rank();
  for (const Index count : {Index{4'099}, Index{50'001}})
    for (int repeat = 0; repeat < 200; ++repeat) {
      std::vector<float> data(static_cast<std::size_t>(count));
      for (Index i = 0; i < count; ++i) data[i] = static_cast<float>(me * repeat + i % 251);
      world->all_reduce(data.data(), count, DType::f32, ReduceOp::sum, {}).wait();
      std::vector<float> expected(data.size());
      for (Index i = 0; i < count; ++i) expected[i] = static_cast<float>(p * (p - 1) / 2 * repeat + p * (i % 251));
      EXPECT_EQ(data, expected) << count << " elements, repeat " << repeat;
    }
}

/// Several collectives at a time, with uneven and empty blocks that take many pieces of shared memory.
TEST(Mpi, CollectivesOfManyPieces) {
  const auto world = mpi_world();
  const int p = world->size(), me = world->rank();
  const auto value = [](int rank, int block, Index i) { return static_cast<double>((rank + 1) * (i % 97) + block); };
  for (const Index largest : {Index{3}, Index{40'000}, Index{200'001}}) {
    std::vector<Index> counts;
    for (int r = 0; r < p; ++r)
      counts.push_back(r % 3 == 1 ? largest / (r + 1) : r % 3 == 2 ? 0 : std::max(largest - r, Index{0}));
    const Index total = std::accumulate(counts.begin(), counts.end(), Index{0});
    std::vector<double> all, mine(static_cast<std::size_t>(counts[me]));
    for (int r = 0; r < p; ++r)
      for (Index i = 0; i < counts[r]; ++i) all.push_back(value(me, r, i));
    std::vector<double> sums = all, gathered(static_cast<std::size_t>(total));
    Request first = world->reduce_scatter(all.data(), mine.data(), counts, DType::f64, {});
    Request second = world->all_reduce(sums.data(), total, DType::f64, ReduceOp::sum, {});
    first.wait();
    Request third = world->all_gather(mine.data(), gathered.data(), counts, DType::f64, {});
    second.wait();
    third.wait();
    EXPECT_EQ(gathered, sums);
    std::vector<double> expected(all.size());
    std::size_t at = 0;
    for (int r = 0; r < p; ++r)
      for (Index i = 0; i < counts[r]; ++i, ++at)
        for (int q = 0; q < p; ++q) expected[at] += value(q, r, i);
    EXPECT_EQ(sums, expected);
  }
}

TEST(Mpi, TellsItsVersion) { EXPECT_NE(mpi_version().find("(MPI "), std::string::npos) << mpi_version(); }

// Only files with the very names of segments are removed, and only those that nobody locks.
TEST(Mpi, SegmentsThatRanksHaveLeftBehindAreRemoved) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / fmt::format("partita-segments-{}", getpid());
  fs::create_directories(folder);
  const std::string left = "partita-77-0123456789abcdef", used = "partita-78-0123456789abcdef";
  const std::vector<std::string> others{"partita-best.h5",
                                        "partita-77",
                                        "partita-77-0123456789abcde",
                                        "partita-77-0123456789abcdefg",
                                        "partita-77-0123456789abcdeX",
                                        "partita--0123456789abcdef",
                                        "partita-7x-0123456789abcdef"};
  std::vector<std::string> all = others;
  all.insert(all.end(), {left, used});
  for (const auto& name : all) std::ofstream(folder / name) << "x";
  const int held = open((folder / used).c_str(), O_RDWR);
  ASSERT_EQ(flock(held, LOCK_EX), 0);
  remove_abandoned_segments(folder, 3600);
  EXPECT_TRUE(fs::exists(folder / left)) << "it is new";
  remove_abandoned_segments(folder, 0);
  EXPECT_FALSE(fs::exists(folder / left));
  EXPECT_TRUE(fs::exists(folder / used)) << "a rank has it";
  for (const auto& name : others) EXPECT_TRUE(fs::exists(folder / name)) << name;
  remove_abandoned_segments(folder / "nowhere", 0);
  close(held);
  fs::remove_all(folder);
}
