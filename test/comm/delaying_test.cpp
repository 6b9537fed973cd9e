#include "partita/comm/delaying.hpp"

#include "partita/base/clock.hpp"
#include "partita/comm/threads.hpp"
#include "test/support/collectives.hpp"

#include <chrono>
#include <thread>

using namespace partita;
using namespace partita::test;

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

TEST(Delaying, NothingToMoveTakesNoTime) {
  run_threads(2, [](Communicator& comm) {
    const auto slow = delaying(comm, {.latency = 60, .bandwidth = 1});
    slow->exchange({}, {}, {}).wait();
    double x = 0;
    slow->all_reduce(&x, 0, DType::f64, ReduceOp::sum, {}).wait();
    slow->split(comm.rank(), 0)->all_reduce(&x, 1, DType::f64, ReduceOp::sum, {}).wait();
  });
}
