// The test double of a device finds missing events, early reuse, accesses by the CPU and wrong orders of communicators;
// and thread ranks that exchange copies on it make none of these mistakes.
#include "test/support/lazy_device.hpp"

#include "partita/base/tensor.hpp"
#include "partita/comm/device_threads.hpp"
#include "partita/comm/threads.hpp"
#include "test/support/collectives.hpp"

#include <cstdlib>
#include <numeric>

using namespace partita;
using namespace partita::test;

namespace {

constexpr Index count = 24;

/// A rank's part of a test: a device, a stream for its computations, and memory.
struct Rank {
  explicit Rank(LazyDevice& its_device)
      : device(its_device),
        stream(its_device.make_stream(Priority::normal)),
        allocator(std::make_shared<Allocator>(its_device, 0, stream)) {}

  Tensor tensor(Index elements) const {
    return {DType::f64, "F", Box(Shape{{'F', elements}}), allocator, MemoryClass::workspace, Fill::none};
  }
  /// Copies values to the device. They must live until the stream is waited for.
  Tensor upload(const std::vector<double>& values) const {
    const Tensor tensor = this->tensor(static_cast<Index>(values.size()));
    device.copy(values.data(), tensor.data(), values.size() * sizeof(double), stream);
    return tensor;
  }

  LazyDevice& device;
  Stream stream;
  std::shared_ptr<Allocator> allocator;
};

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "nothing thrown";
}

/// Verbs in a row on a rank's stream, without a wait of the CPU between them: a sum, shares of it, their concatenation,
/// boxes that are added, a broadcast.
std::vector<std::vector<double>> all_verbs(Communicator& threads, LazyDevice& device) {
  const auto comm = make_device_threads(threads, device, std::chrono::seconds(20));
  const Rank rank(device);
  const int p = comm->size(), me = comm->rank();
  const auto values = block(me, count);
  std::vector<Index> counts = uneven_counts(p);
  counts.back() += count - std::accumulate(counts.begin(), counts.end(), Index{0});

  const Tensor sum = rank.upload(values);
  comm->all_reduce(sum.data(), count, DType::f64, ReduceOp::sum, rank.stream).wait(rank.stream);
  const Tensor share = rank.tensor(counts[static_cast<std::size_t>(me)]);
  auto under_way = comm->reduce_scatter(sum.data(), share.data(), counts, DType::f64, rank.stream);
  const Tensor other = rank.upload(values);  // computing while the sum is under way
  under_way.wait(rank.stream);
  const Tensor all = rank.tensor(count);
  comm->all_gather(share.data(), all.data(), counts, DType::f64, rank.stream).wait(rank.stream);

  const Tensor added = rank.tensor(count);
  added.zero(rank.stream);
  Box part(Shape{{'F', count}});
  part[0] = {2, 9};
  std::vector<Transfer> sends, recvs;
  if (p > 1) sends.push_back({(me + 1) % p, part}), recvs.push_back({(me + p - 1) % p, part});
  comm->exchange_boxes({other, sends, added, recvs, true}, rank.stream).wait(rank.stream);
  add(added, other, rank.stream);
  comm->broadcast(other.data(), count, DType::f64, p - 1, rank.stream).wait(rank.stream);
  std::vector<std::vector<double>> results{read(sum, rank.stream), read(all, rank.stream), read(other, rank.stream)};
  for (const Tensor* each : {&sum, &share, &other, &all, &added}) each->zero(rank.stream);  // nobody may still need it
  return results;
}

/// The same numbers, computed from the values of all ranks.
std::vector<std::vector<double>> expected(int p) {
  std::vector<double> sum(static_cast<std::size_t>(count)), all(sum.size()), last = block(p - 1, count);
  for (int r = 0; r < p; ++r)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += block(r, count)[i];
  for (std::size_t i = 0; i < sum.size(); ++i) all[i] = p * sum[i];
  for (std::size_t i = 2; p > 1 && i < 9; ++i) last[i] += block(p - 2, count)[i];
  return {sum, all, last};
}

int seeds() { return std::getenv("PARTITA_LONG") == nullptr ? 5 : 200; }

}  // namespace

TEST(LazyDevice, FindsAMissingEvent) {
  for (const bool ordered : {true, false}) {
    LazyDevice device(1);
    const Rank rank(device);
    const Stream other = device.make_stream(Priority::high);
    const auto values = block(0, count);
    const Tensor x = rank.upload(values), y = rank.tensor(count);
    if (ordered) device.wait(other, device.record(rank.stream));
    device.copy(x.data(), y.data(), static_cast<std::size_t>(x.bytes()), other);
    const std::string message = message_of([&] { device.check(); });
    if (ordered)
      EXPECT_EQ(message, "nothing thrown");
    else
      EXPECT_NE(message.find("touch the same bytes, without an event"), std::string::npos) << message;
  }
}

TEST(LazyDevice, FindsMemoryThatIsUsedAgainTooEarly) {
  for (const bool ordered : {true, false}) {
    LazyDevice device(2);
    const Rank rank(device);
    const Stream other = device.make_stream(Priority::high);
    const auto values = block(0, count);
    const Tensor y = rank.tensor(count);
    {
      const Tensor x = rank.upload(values);
      device.wait(other, device.record(rank.stream));
      device.copy(x.data(), y.data(), static_cast<std::size_t>(x.bytes()), other);
      if (ordered) device.wait(rank.stream, device.record(other));
    }
    const Tensor again = rank.upload(values);  // the allocator hands out the memory of x
    const std::string message = message_of([&] { device.check(); });
    EXPECT_EQ(message.find("touch the same bytes, without an event") == std::string::npos, ordered) << message;
  }
}

TEST(LazyDevice, DoesNotLetTheCpuTouchItsMemory) {
  LazyDevice device(3);
  const Rank rank(device);
  const Tensor x = rank.tensor(count);
  x.zero(rank.stream);
  device.finish(rank.stream);
  EXPECT_DEATH(x.as<double>(), "the CPU may not access a tensor in the memory of a device");
  EXPECT_DEATH(static_cast<void>(*static_cast<volatile std::byte*>(x.data())), "");
}

TEST(DeviceThreadsOnALazyDevice, AllVerbsAreRightInEveryOrder) {
  for (int seed = 0; seed < seeds(); ++seed)
    for (int p = 1; p <= 4; ++p) {
      LazyDevice device(static_cast<unsigned>(seed));
      run_threads(
          p, [&](Communicator& threads) { EXPECT_EQ(all_verbs(threads, device), expected(p)) << "seed " << seed; });
      EXPECT_NO_THROW(device.check()) << "seed " << seed << ", " << p << " ranks";
    }
}

// The streams of messages wait for computing, computing for messages, and messages for those of other ranks. Without
// one of these kinds of events, every run races, whichever rank comes first to a message.
TEST(DeviceThreadsOnALazyDevice, EveryMissingKindOfEventIsFoundInEveryRun) {
  using enum Priority;
  for (const auto& [waiter, awaited] : {std::pair{high, normal}, {normal, high}, {high, high}})
    for (int seed = 0; seed < seeds(); ++seed)
      for (int p = 2; p <= 4; ++p) {
        LazyDevice device(static_cast<unsigned>(seed));
        device.forget_waits(waiter, awaited);
        const std::string message = message_of([&] {
          run_threads(p, [&](Communicator& threads) { all_verbs(threads, device); });
          device.check();
        });
        EXPECT_NE(message.find("touch the same bytes, without an event"), std::string::npos)
            << message << ": seed " << seed << ", " << p << " ranks";
      }
}

// Leaves out one event after the other. Many are not needed, since others order the same operations.
TEST(DeviceThreadsOnALazyDevice, AnEventThatIsNotNeededGivesNoAlarm) {
  bool exists = true;
  for (int call = 1; exists; ++call) {
    LazyDevice device(static_cast<unsigned>(call));
    device.forget_wait(call);
    const std::string message = message_of([&] {
      run_threads(3, [&](Communicator& threads) {
        if (all_verbs(threads, device) != expected(3)) fail("wrong numbers");
      });
      device.check();
    });
    exists = device.waits() >= call;
    EXPECT_TRUE(message == "nothing thrown" || device.missed()) << message;
  }
}

TEST(DeviceThreadsOnALazyDevice, EveryCallMayFail) {
  int calls = 0;
  {
    LazyDevice device(0);
    run_threads(2, [&](Communicator& threads) { all_verbs(threads, device); });
    calls = device.calls();
  }
  for (int call = 1; call <= calls; call += std::max(1, calls / 40)) {
    LazyDevice device(static_cast<unsigned>(call));
    device.fail_at(call);
    const std::string message = message_of([&] { run_threads(2, [&](Communicator& c) { all_verbs(c, device); }); });
    EXPECT_NE(message.find(fmt::format("the call {} of the device fails", call)), std::string::npos) << message;
  }
}

TEST(DeviceThreadsOnALazyDevice, CommunicatorsInAnotherOrderAreNamed) {
  LazyDevice device(5);
  const std::string message = message_of([&] {
    run_threads(2, [&](Communicator& threads) {
      const auto comm = make_device_threads(threads, device, std::chrono::milliseconds(300));
      const auto one = comm->split(0, comm->rank()), two = comm->split(0, comm->rank());
      const Rank rank(device);
      const auto values = block(comm->rank(), count);
      const Tensor a = rank.upload(values), b = rank.upload(values);
      const bool first = comm->rank() == 0;
      (first ? one : two)->all_reduce(a.data(), count, DType::f64, ReduceOp::sum, rank.stream).wait(rank.stream);
      (first ? two : one)->all_reduce(b.data(), count, DType::f64, ReduceOp::sum, rank.stream).wait(rank.stream);
    });
  });
  EXPECT_NE(message.find("do all ranks use their communicators in one order?"), std::string::npos) << message;
}
