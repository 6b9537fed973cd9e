// Collectives by levels of ranks that are, as they believe, on several nodes.
#include "partita/base/philox.hpp"
#include "src/comm/mpi/mpi_communicator.hpp"
#include "test/support/collectives.hpp"
#include "test/support/mpi_world.hpp"

#include <algorithm>
#include <numeric>

namespace partita::test::levels_test {
namespace {

/// A communicator of all ranks, which are on these nodes.
std::shared_ptr<Communicator> world_on(const std::vector<int>& nodes) {
  MPI_Comm world = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &world);
  Nodes all(world);
  all.of_rank = nodes;
  return make_mpi_communicator(world, std::make_shared<MpiContext>(all));
}

/// Nodes of as many ranks as the job has: equally many on each node, in two orders, and unequally many.
std::vector<std::vector<int>> placements(int ranks) {
  std::vector<std::vector<int>> all(3, std::vector<int>(static_cast<std::size_t>(ranks)));
  for (int r = 0; r < ranks; ++r) {
    all[0][r] = r / 2;
    all[1][r] = 7 - r % 2;
    all[2][r] = r / 3;
  }
  return all;
}

TEST(Levels, EveryVerbAgreesWithArithmetic) {
  const int p = mpi_world()->size();
  for (const auto& nodes : placements(p)) {
    SCOPED_TRACE(fmt::format("nodes {}", fmt::join(nodes, " ")));
    const auto world = world_on(nodes);
    check_transport(*world);
    const auto half = world->split(world->rank() * 2 / p, world->rank());
    check_all_reduce(*half);
    check_all_gather(*half);
    check_reduce_scatter(*half);
  }
}

/// Collectives of all verbs are under way at a time, and each rank waits for them in its own order.
TEST(Levels, CollectivesOfAnyOrder) {
  const int p = mpi_world()->size();
  for (const auto& nodes : placements(p)) {
    const auto world = world_on(nodes);
    const int me = world->rank();
    const std::vector<Index> counts = [&] {
      std::vector<Index> each;
      for (int r = 0; r < p; ++r) each.push_back(r % 2 == 0 ? 3'000 + r : 0);
      return each;
    }();
    const Index total = std::accumulate(counts.begin(), counts.end(), Index{0});
    for (int repeat = 0; repeat < 10; ++repeat) {
      std::vector<double> sum(static_cast<std::size_t>(total), me + repeat), small{1.0 * me}, all(sum), same(5'000);
      std::vector<double> gathered(sum.size()), mine(static_cast<std::size_t>(counts[me]), 10.0 * me), share(mine);
      if (me == repeat % p) same.assign(same.size(), repeat);
      constexpr DType f64 = DType::f64;
      std::vector<Request> requests;
      requests.push_back(world->all_gather(mine.data(), gathered.data(), counts, f64, {}));
      requests.push_back(world->all_reduce(sum.data(), total, f64, ReduceOp::sum, {}));
      requests.push_back(world->broadcast(same.data(), std::ssize(same), f64, repeat % p, {}));
      requests.push_back(world->all_reduce(small.data(), 1, f64, ReduceOp::max, {}));
      requests.push_back(world->reduce_scatter(all.data(), share.data(), counts, f64, {}));
      for (std::size_t i = 0; i < requests.size(); ++i)
        requests[(i * 2 + static_cast<std::size_t>(me)) % requests.size()].wait();
      const double of_all = p * (p - 1) / 2.0 + static_cast<double>(p * repeat);
      std::vector<double> expected;
      for (int r = 0; r < p; ++r) expected.insert(expected.end(), static_cast<std::size_t>(counts[r]), 10.0 * r);
      ASSERT_EQ(gathered, expected);
      ASSERT_EQ(sum, std::vector<double>(sum.size(), of_all));
      ASSERT_EQ(same, std::vector<double>(same.size(), repeat));
      ASSERT_EQ(small[0], p - 1);
      ASSERT_EQ(share, std::vector<double>(share.size(), of_all));
    }
  }
}

/// Groups that sum replicas get the same bits, however they lie over nodes. All ways to sum fewer than four numbers
/// agree.
TEST(Levels, ReplicasAgreeWhereverTheyAre) {
  const int p = mpi_world()->size();
  for (std::uint64_t draw = 0; draw < 6; ++draw) {
    std::vector<int> nodes;
    for (int r = 0; r < p; ++r) nodes.push_back(draw < 2 ? r / 3 : static_cast<int>(Random(11, 1, draw).bits(r) % 3));
    const auto world = world_on(nodes);
    const int size = p / 2, groups = 2, me = world->rank();
    const bool strided = draw % 2 == 0;  // ranks of a group are neighbors, or apart
    const auto group = world->split(strided ? me % groups : me / size, me);
    for (const Index count : {Index{7}, Index{5'003}}) {
      std::vector<float> values;
      for (Index i = 0; i < count; ++i)
        values.push_back(static_cast<float>(Random(12, 1, draw).normal(group->rank() * count + i)));
      group->all_reduce(values.data(), count, DType::f32, ReduceOp::sum, {}).wait();
      std::vector<float> first = values;
      world->broadcast(first.data(), count, DType::f32, 0, {}).wait();
      ASSERT_EQ(values, first) << fmt::format("nodes {}, strided {}", fmt::join(nodes, " "), strided);
    }
  }
}

}  // namespace
}  // namespace partita::test::levels_test
