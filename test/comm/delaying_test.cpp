#include "src/comm/delaying.hpp"

#include "src/comm/threads/threads.hpp"
#include "src/system/clock.hpp"
#include "test/support/collectives.hpp"

#include <chrono>
#include <thread>

namespace partita::test::delaying_test {

namespace {

/// Returns the seconds that a ring shift of 1000 bytes takes, with `work` seconds of work between its start and its
/// wait.
double shift(Communicator& comm, double work) {
  const std::vector<std::byte> out(1000);
  std::vector<std::byte> in(1000);
  const Send send{(comm.rank() + 1) % comm.size(), out};
  const Recv recv{(comm.rank() + comm.size() - 1) % comm.size(), in};
  comm.all_reduce(nullptr, 0, DType::f32, ReduceOp::sum, {}).wait();
  const double start = now();
  auto request = comm.exchange({&send, 1}, {&recv, 1}, {});
  std::this_thread::sleep_for(std::chrono::duration<double>(work));
  request.wait();
  return now() - start;
}

}  // namespace

TEST(Delaying, ChangesNothingElse) {
  run_threads(3, [](Communicator& comm) { check_transport(*delaying(comm, {1e-6, 1e9})); });
}

// The lower bounds hold on any machine. The upper bounds leave room for a busy machine.
TEST(Delaying, WaitingTakesLatencyAndTransfer) {
  run_threads(2, [](Communicator& comm) {
    const auto slow = delaying(comm, {.latency = 0.05, .bandwidth = 1000 / 0.1});
    EXPECT_GE(shift(*slow, 0), 0.15);
    std::vector<double> data(125);
    const double start = now();
    auto request = slow->all_reduce(data.data(), 125, DType::f64, ReduceOp::sum, {});
    request.wait();
    EXPECT_GE(now() - start, 0.15);
  });
}

TEST(Delaying, WorkBetweenStartAndWaitIsHidden) {
  run_threads(2, [](Communicator& comm) {
    const auto slow = delaying(comm, {.latency = 0.3, .bandwidth = 0});
    const double time = shift(*slow, 0.29);
    EXPECT_GE(time, 0.3);
    EXPECT_LT(time, 0.55) << "the work was added to the transfer";
  });
}

// Each of these would take a latency if it counted.
TEST(Delaying, NothingToMoveTakesNoTime) {
  constexpr double latency = 20;
  run_threads(2, [&](Communicator& comm) {
    const auto slow = delaying(comm, {.latency = latency, .bandwidth = 1});
    const auto alone = slow->split(comm.rank(), 0);
    const Send send{1 - comm.rank(), {}};
    const Recv recv{1 - comm.rank(), {}};
    const std::vector<Index> none{0, 0};
    double x = 7;
    const double start = now();
    slow->exchange({}, {}, {}).wait();
    slow->exchange({&send, 1}, {&recv, 1}, {}).wait();
    slow->all_reduce(&x, 0, DType::f64, ReduceOp::sum, {}).wait();
    slow->all_gather(&x, &x, none, DType::f64, {}).wait();
    slow->broadcast(&x, 0, DType::f64, 0, {}).wait();
    alone->all_reduce(&x, 1, DType::f64, ReduceOp::sum, {}).wait();
    EXPECT_LT(now() - start, latency);
    EXPECT_EQ(x, 7) << "a sum over one rank is its own value";
  });
}

}  // namespace partita::test::delaying_test
