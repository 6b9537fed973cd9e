// Ranks of run_thread_ranks(): all verbs, sums in the order of MPI ranks of one node, communication that goes on during
// waits, limits of waiting, and failures.
#include "partita/comm/thread_ranks.hpp"
#include "partita/base/error.hpp"
#include "src/comm/device/device_threads.hpp"
#include "test/support/cases.hpp"
#include "test/support/collectives.hpp"
#include "test/support/error_of.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <ctime>
#include <thread>

namespace partita::test::thread_ranks_test {
namespace {

using std::chrono::milliseconds;

TEST(ThreadRanks, EveryVerbAgreesWithArithmetic) {
  for (int ranks = 1; ranks <= 7; ranks += ranks_step(ranks)) run_thread_ranks(ranks, {}, check_transport);
}

TEST(ThreadRanks, CarryCopiesBetweenTheirDevices) {
  for (int ranks = 1; ranks <= 5; ranks += ranks_step(ranks))
    run_thread_ranks(ranks, {}, [](Communicator& comm) {
      check_transport(*make_device_threads(comm, host_device(), milliseconds(60'000)));
      check_transport(comm);
    });
}

/// What the shared memory of MPI ranks computes: small sums in rank order, and each part of a large one from the rank
/// that owns the part, cyclically.
TEST(ThreadRanks, SumInTheOrderOfMpiRanks) {
  constexpr int ranks = 3;
  const std::array<float, ranks> values{1.0F, 1e8F, -1e8F};  // rounded sums depend on the order
  run_thread_ranks(ranks, {}, [&](Communicator& comm) {
    const float mine = values[comm.rank()];
    std::vector<float> small(5, mine), large(30'000, mine);
    comm.all_reduce(small.data(), 5, DType::f32, ReduceOp::sum, {}).wait();
    EXPECT_EQ(small, std::vector<float>(5, (values[0] + values[1]) + values[2]));
    comm.all_reduce(large.data(), 30'000, DType::f32, ReduceOp::sum, {}).wait();
    for (const float sum : large) EXPECT_TRUE(sum == 0 || sum == 1) << sum;
    EXPECT_EQ(large.front(), (values[0] + values[1]) + values[2]);  // of rank 0
    EXPECT_EQ(large.back(), (values[2] + values[0]) + values[1]);   // of rank 2
    EXPECT_FALSE(comm.asynchronous());
    EXPECT_GT(comm.shared_bytes(), 0);
  });
}

/// Both ranks run on one core of several, as on a machine that is busy with other work. A rank that spins would keep
/// the other off the core for a time slice of some milliseconds in each sum.
TEST(ThreadRanks, DoNotSpinWhileTheOtherNeedsTheCore) {
  constexpr int sums = 200;
  cpu_set_t mine, first;
  CPU_ZERO(&mine);
  CPU_ZERO(&first);
  ASSERT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
  int core = 0;
  while (CPU_ISSET(core, &mine) == 0) ++core;
  CPU_SET(core, &first);
  const std::clock_t start = std::clock();  // time of the processor, not of the clock on the wall
  run_thread_ranks(2, {.most = 60}, [&](Communicator& comm) {
    ASSERT_EQ(sched_setaffinity(0, sizeof first, &first), 0);
    for (int i = 0; i < sums; ++i) {
      double one = 1;
      comm.all_reduce(&one, 1, DType::f64, ReduceOp::sum, {}).wait();
    }
  });
  EXPECT_LT(std::clock() - start, CLOCKS_PER_SEC / 10);
}

/// Rank 1 needs what rank 0 has started but waits for later.
TEST(ThreadRanks, WhatHasStartedGoesOnWhileARankWaitsForAMessage) {
  run_thread_ranks(2, {.most = 20}, [](Communicator& comm) {
    std::vector<double> sums(100'000, 1);
    auto pending = comm.all_reduce(sums.data(), 100'000, DType::f64, ReduceOp::sum, {});
    std::vector<double> word{3};
    if (comm.rank() == 1) {
      pending.wait();
      comm.exchange(std::array{Send{0, bytes(word)}}, {}, {}).wait();
    } else {
      comm.exchange({}, std::array{Recv{1, writable(word)}}, {}).wait();
      pending.wait();
    }
    EXPECT_EQ(sums, std::vector<double>(100'000, 2));
  });
}

TEST(ThreadRanks, AWaitThatIsTooLongFails) {
  for (const bool of_sum : {false, true}) {
    const auto start = std::chrono::steady_clock::now();
    try {
      run_thread_ranks(2, {.most = 1}, [&](Communicator& comm) {
        if (comm.rank() == 0) return std::this_thread::sleep_for(milliseconds(1500));
        std::vector<double> word{3};
        if (of_sum)
          comm.all_reduce(word.data(), 1, DType::f64, ReduceOp::sum, {}).wait();
        else
          comm.exchange({}, std::array{Recv{0, writable(word)}}, {}).wait();
      });
      ADD_FAILURE() << "nothing failed";
    } catch (const WaitedTooLong& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with("rank 1 has waited 1 s for other ranks: "))
          << error.what();
    }
    EXPECT_GT(std::chrono::steady_clock::now() - start, milliseconds(950));
  }
}

TEST(ThreadRanks, AFailureEndsTheWaitsOfTheOthers) {
  for (const bool of_sum : {false, true})
    EXPECT_EQ(error_of([&] {
                run_thread_ranks(3, {}, [&](Communicator& comm) {
                  if (comm.rank() == 1) fail("it broke");
                  std::vector<double> word{3};
                  if (of_sum)
                    comm.all_reduce(word.data(), 1, DType::f64, ReduceOp::sum, {}).wait();
                  else
                    comm.exchange({}, std::array{Recv{1, writable(word)}}, {}).wait();
                });
              }),
              "it broke");
}

}  // namespace
}  // namespace partita::test::thread_ranks_test
