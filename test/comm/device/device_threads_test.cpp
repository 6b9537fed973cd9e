// Thread ranks that exchange copies between devices, on the CPU: they keep the contract of every transport, combine
// short vectors in the order of run_threads, and fail together.
#include "src/comm/device/device_threads.hpp"

#include "src/comm/threads/threads.hpp"
#include "test/support/collectives.hpp"

namespace partita::test::device_threads_test {

TEST(DeviceThreads, EveryVerbAgreesWithArithmetic) {
  for (const int ranks : {1, 2, 3, 5, 8})
    run_threads(ranks, [](Communicator& comm) { check_transport(*make_device_threads(comm, host_device())); });
}

// Sums of numbers of very different sizes depend on the order.
TEST(DeviceThreads, SumInTheOrderOfThreads) {
  for (int ranks = 2; ranks <= 8; ++ranks)
    run_threads(ranks, [](Communicator& comm) {
      const auto device = make_device_threads(comm, host_device());
      auto values = block(comm.rank(), 64);
      for (auto& x : values) x = std::sin(x) * std::pow(10.0, 3 * (comm.rank() % 5));
      const auto drawn = values;
      auto other = values;
      comm.all_reduce(values.data(), 64, DType::f64, ReduceOp::sum, {}).wait();
      device->all_reduce(other.data(), 64, DType::f64, ReduceOp::sum, {}).wait();
      EXPECT_EQ(values, other);
      const auto counts = uneven_counts(comm.size());
      const auto mine = static_cast<std::size_t>(counts[comm.rank()]);
      std::vector<double> share(mine), other_share(mine);
      comm.reduce_scatter(drawn.data(), share.data(), counts, DType::f64, {}).wait();
      device->reduce_scatter(drawn.data(), other_share.data(), counts, DType::f64, {}).wait();
      EXPECT_EQ(share, other_share);
    });
}

// Long sums go in blocks, each summed by one rank, in rank order. The room takes several turns.
TEST(DeviceThreads, LongSumsAreTheSameOnAllRanks) {
  for (const int ranks : {3, 4, 5, 8})
    for (const DType dtype : {DType::f32, DType::f64}) {
      constexpr Index count = 70001;
      std::vector<std::vector<double>> sums(static_cast<std::size_t>(ranks));
      const auto value = [](int rank, Index i) {
        return static_cast<float>(std::sin(static_cast<double>(i + 7 * rank)));
      };
      run_threads(ranks, [&](Communicator& comm) {
        const auto device = make_device_threads(comm, host_device(), std::chrono::seconds(60), 1 << 16);
        const auto sum = [&](auto type) {
          std::vector<decltype(type)> values;
          for (Index i = 0; i < count; ++i) values.push_back(value(comm.rank(), i));
          device->all_reduce(values.data(), count, dtype, ReduceOp::sum, {}).wait();
          sums[comm.rank()].assign(values.begin(), values.end());
        };
        dtype == DType::f32 ? sum(float{}) : sum(double{});
      });
      for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(sums[rank], sums[0]) << "on rank " << rank;
      for (Index i = 0; i < count; ++i) {
        double exact = 0, in_f32 = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          exact += value(rank, i);
          in_f32 = static_cast<float>(in_f32) + value(rank, i);
        }
        ASSERT_EQ(sums[0][i], dtype == DType::f32 ? in_f32 : exact) << "element " << i;
      }
    }
}

TEST(DeviceThreads, AFailureEndsThemAll) {
  for (int failing = 0; failing < 4; ++failing) try {
      run_threads(4, [&](Communicator& comm) {
        const auto device = make_device_threads(comm, host_device());
        if (comm.rank() == failing) fail("rank {} cannot", failing);
        double x = 0;
        device->all_reduce(&x, 1, DType::f64, ReduceOp::sum, {}).wait();
      });
      FAIL() << "nothing thrown";
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()), "rank " + std::to_string(failing) + " cannot");
    }
}

TEST(DeviceThreads, AMessageOfARankThatHasFinishedCannotArrive) {
  try {
    run_threads(2, [](Communicator& comm) {
      const auto device = make_device_threads(comm, host_device());
      if (comm.rank() == 1) return;
      std::vector<double> data(3);
      const Recv recv{1, writable(data)};
      device->exchange({}, {&recv, 1}, {}).wait();
    });
    FAIL() << "nothing thrown";
  } catch (const CommunicationError& e) {
    EXPECT_NE(std::string(e.what()).find("rank 1 has finished"), std::string::npos) << e.what();
  }
}

TEST(DeviceThreads, BothSidesKnowTheSizeOfAMessage) {
  const auto differ = [](Communicator& comm) {
    const auto device = make_device_threads(comm, host_device());
    std::vector<double> data(static_cast<std::size_t>(2 + comm.rank()));
    const Send send{1, bytes(data)};
    const Recv recv{0, writable(data)};
    if (comm.rank() == 0) device->exchange({&send, 1}, {}, {}).wait();
    if (comm.rank() == 1) device->exchange({}, {&recv, 1}, {}).wait();
  };
  EXPECT_THROW(run_threads(2, differ), CommunicationError);
}

}  // namespace partita::test::device_threads_test
