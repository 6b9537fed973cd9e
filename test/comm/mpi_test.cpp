#include "partita/comm/mpi.hpp"

#include "partita/base/error.hpp"
#include "support/collectives.hpp"
#include "support/mpi_world.hpp"

#include <climits>

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

TEST(Mpi, RefusesCountsThatMpiCannotSay) {
  const auto world = mpi_world();
  std::vector<Index> counts(static_cast<std::size_t>(world->size()), 0);
  counts.back() = Index{INT_MAX} + 1;
  EXPECT_THROW(world->all_gather(nullptr, nullptr, counts, DType::f32, {}), Error);
  EXPECT_THROW(world->reduce_scatter(nullptr, nullptr, counts, DType::f32, {}), Error);
  EXPECT_THROW(world->all_to_all(nullptr, counts, nullptr, counts, DType::f32, {}), Error);
}

TEST(Mpi, TellsItsVersion) { EXPECT_NE(mpi_version().find("(MPI "), std::string::npos) << mpi_version(); }
