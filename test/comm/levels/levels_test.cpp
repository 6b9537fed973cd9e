// What collectives by levels send between nodes. test/comm/mpi/levels_test.cpp has what they compute.
#include "src/comm/levels/levels.hpp"

#include "partita/comm/counting.hpp"
#include "src/comm/threads/threads.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace partita::test::levels_test {
namespace {

TEST(Placement, NumbersNodesByTheirFirstRanks) {
  const Placement placed({7, 3, 7, 3, 7, 3});
  EXPECT_EQ(placed.nodes(), 2);
  EXPECT_EQ(placed.on_each(), 3);
  EXPECT_EQ(placed.node(3), 1);
  EXPECT_EQ(placed.place(3), 1);
  EXPECT_EQ(placed.rank(0, 2), 4);
  EXPECT_TRUE(placed.has_levels());
  EXPECT_EQ(Placement({1, 1, 2}).on_each(), 0);
  EXPECT_FALSE(Placement({1, 2}).has_levels());
  EXPECT_EQ(Placement({5, 6, 5}), Placement({2, 1, 2}));
}

TEST(Placement, GroupsShareWhatAllOfTheirSizeCan) {
  const std::vector<int> nodes{0, 0, 0, 1, 1, 1, 2, 2, 2};
  const auto of = [&](const std::vector<std::vector<int>>& groups) {
    const Sharing shared = sharing(groups, nodes);
    return std::pair(shared.memory, shared.levels);
  };
  EXPECT_EQ(of({{0, 1, 2}, {3, 4, 5}}), std::pair(true, false));
  EXPECT_EQ(of({{0, 1}, {2, 3}}), std::pair(false, false));
  EXPECT_EQ(of({{0, 1}, {2, 3, 4}}), std::pair(true, false)) << "groups of other sizes sum other weights";
  EXPECT_EQ(of({{0, 1, 3, 4}, {1, 2, 7, 8}}), std::pair(false, true));
  EXPECT_EQ(of({{0, 1, 3, 4}, {0, 3, 1, 4}}), std::pair(false, false)) << "their orders differ";
}

// Of n bytes, all ranks of m nodes together send what m ranks would: each of q rails carries n/q.
TEST(Levels, RailsCarryTheirShare) {
  for (const auto& [m, q] : {std::pair{2, 4}, {4, 2}, {3, 2}})
    run_threads(m * q, [m = m, q = q](Communicator& comm) {
      const int rank = comm.rank();
      std::vector<int> nodes;
      for (int r = 0; r < m * q; ++r) nodes.push_back(r / q);
      const auto counter = std::make_shared<TrafficCounter>();
      const auto levels = std::make_shared<Levels>(
          Placement(nodes), rank,
          Levels::Parts{comm.split(rank / q, rank), counting(comm.split(rank % q, rank), counter),
                        comm.split(rank / q, rank)});
      const auto sent = [&](Verb verb) {
        const auto found = counter->by_label().find({"", verb});
        return found == counter->by_label().end() ? Traffic() : found->second;
      };
      const Index count = 2400 * q, bytes = count * size_of(DType::f32);
      std::vector<float> all(static_cast<std::size_t>(count), 1), mine(static_cast<std::size_t>(count / m / q), 1);
      const std::vector<Index> counts(nodes.size(), count / m / q);
      levels->all_reduce(all.data(), count, DType::f32, ReduceOp::sum).wait();
      EXPECT_EQ(all, std::vector<float>(all.size(), static_cast<float>(m * q)));
      EXPECT_EQ(sent(Verb::all_reduce), (Traffic{1, bytes / q}));
      levels->reduce_scatter(all.data(), mine.data(), counts, DType::f32).wait();
      EXPECT_EQ(sent(Verb::reduce_scatter), (Traffic{1, bytes / q}));
      levels->all_gather(mine.data(), all.data(), counts, DType::f32).wait();
      EXPECT_EQ(all, std::vector<float>(all.size(), static_cast<float>(m * q * m * q)));
      EXPECT_EQ(sent(Verb::all_gather), (Traffic{1, bytes / q}));
      levels->broadcast(all.data(), count, DType::f32, q + 1).wait();
      EXPECT_EQ(sent(Verb::broadcast), rank % q == 1 ? (Traffic{1, bytes}) : Traffic());
    });
}

}  // namespace
}  // namespace partita::test::levels_test
