#include "src/comm/threads/threads.hpp"

#include "partita/base/error.hpp"
#include "partita/comm/process_grid.hpp"
#include "test/support/cases.hpp"
#include "test/support/collectives.hpp"
#include "test/support/grids.hpp"

#include <atomic>

namespace partita::test::threads_test {

namespace {

/// Returns a copy of the communicator of run_threads as the shared pointer that a ProcessGrid needs.
std::shared_ptr<Communicator> whole(Communicator& comm) { return comm.split(0, comm.rank()); }

template <class E>
std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const E& e) {
    return e.what();
  }
  return "nothing thrown";
}

}  // namespace

TEST(Threads, EveryVerbAgreesWithArithmetic) {
  for (int ranks = 1; ranks <= 9; ranks += ranks_step(ranks)) run_threads(ranks, check_transport);
}

TEST(Threads, ReplicasAgreeBitForBit) {
  for (int ranks = 2; ranks <= 8; ++ranks)
    run_threads(ranks, [](Communicator& comm) {
      auto data = block(comm.rank(), 50);
      for (auto& x : data) x = 1 / (x + 0.1);
      comm.all_reduce(data.data(), 50, DType::f64, ReduceOp::sum, {}).wait();
      auto first = data;
      comm.broadcast(first.data(), 50, DType::f64, 0, {}).wait();
      EXPECT_EQ(data, first);
    });
}

TEST(Threads, NoRanksAreRefused) {
  EXPECT_THROW(run_threads(0, [](Communicator&) {}), Error);
}

TEST(Threads, TheFirstFailureEndsThemAll) {
  for (int failing = 0; failing < 4; ++failing) {
    std::atomic<int> ended = 0;
    const auto message = message_of<Error>([&] {
      run_threads(4, [&](Communicator& comm) {
        struct AtEnd {
          std::atomic<int>& count;
          ~AtEnd() { ++count; }
        } at_end{ended};
        std::vector<double> data(3);
        const Recv recv{(comm.rank() + 1) % 4, writable(data)};
        auto pending = comm.exchange({}, {&recv, 1}, {});  // never sent
        if (comm.rank() == failing) fail("rank {} cannot", failing);
        double x = 0;
        comm.all_reduce(&x, 1, DType::f64, ReduceOp::sum, {}).wait();
        pending.wait();
      });
    });
    EXPECT_EQ(message, fmt::format("rank {} cannot", failing));
    EXPECT_EQ(ended, 4);
  }
}

TEST(Threads, AlikeFailuresAreReportedOnceFromTheLowestRank) {
  EXPECT_EQ(message_of<Error>([] { run_threads(3, [](Communicator& comm) { fail("rank {} too", comm.rank()); }); }),
            "rank 0 too");
}

TEST(Threads, AMessageFromARankThatHasFinishedIsAnError) {
  const auto message = message_of<CommunicationError>([] {
    run_threads(3, [](Communicator& comm) {
      std::vector<double> data(3);
      const Recv recv{2, writable(data)};
      if (comm.rank() == 1) comm.exchange({}, {&recv, 1}, {}).wait();
    });
  });
  EXPECT_EQ(message, "a message from rank 2 cannot arrive: that rank has finished");
}

TEST(Threads, AMessageOfAnotherSizeIsAnError) {
  const auto message = message_of<CommunicationError>([] {
    run_threads(2, [](Communicator& comm) {
      const std::vector<double> out(3);
      std::vector<double> in(2);
      const Send send{1 - comm.rank(), bytes(out)};
      const Recv recv{1 - comm.rank(), writable(in)};
      comm.exchange({&send, 1}, {&recv, 1}, {}).wait();
    });
  });
  EXPECT_NE(message.find("expected 16 bytes"), std::string::npos) << message;
}

TEST(ProcessGrid, HasACommunicatorForEveryAxisSet) {
  for (const auto& grid : grids())
    run_threads(grid.size(), [&](Communicator& comm) {
      auto sets = all_axis_sets(grid);
      sets.push_back(0);  // asked for twice
      const ProcessGrid processes(grid, whole(comm), sets);
      EXPECT_EQ(processes.rank(), comm.rank());
      for (const AxisSet axes : sets) {
        const auto group = grid.group(comm.rank(), axes);
        auto& along = processes.along(axes);
        ASSERT_EQ(along.size(), static_cast<int>(group.size())) << grid.print(axes);
        std::vector<std::int32_t> members(group.size());
        const std::int32_t mine = comm.rank();
        along.all_gather(&mine, members.data(), std::vector<Index>(group.size(), 1), DType::i32, {}).wait();
        EXPECT_EQ(std::vector<int>(members.begin(), members.end()), group) << grid.print(axes);
      }
    });
}

TEST(ProcessGrid, NamesBothNumbersIfTheRanksDoNotFit) {
  const auto message = message_of<Error>(
      [] { run_threads(3, [](Communicator& comm) { ProcessGrid(Grid::parse("y=2 x=2"), whole(comm), {}); }); });
  EXPECT_EQ(message, "the grid \"y=2 x=2\" has 4 ranks, but the job has 3");
}

}  // namespace partita::test::threads_test
