// The test double of a device finds missing events, early reuse, accesses by the CPU and wrong orders of communicators;
// and thread ranks that exchange copies on it make none of these mistakes.
#include "test/support/cases.hpp"
#include "test/support/device_verbs.hpp"

#include "src/comm/device/device_threads.hpp"
#include "src/comm/device/staged.hpp"
#include "src/comm/threads/threads.hpp"
#include "test/support/error_of.hpp"

#include <cstdlib>

namespace partita::test::lazy_device_test {

int seeds() { return std::getenv("PARTITA_LONG") == nullptr ? 5 : 200; }

/// A way between devices, and the kinds of events without which it cannot be right: who waits for whom.
struct Transport {
  std::string name;
  std::shared_ptr<Communicator> (*make)(Communicator& threads, Device& device);
  std::vector<std::pair<Priority, Priority>> needed;
};

const Transport device_threads{
    "DeviceThreads",
    [](Communicator& threads, Device& device) {
      return make_device_threads(threads, device, std::chrono::seconds(20));
    },
    {{Priority::high, Priority::normal}, {Priority::normal, Priority::high}, {Priority::high, Priority::high}}};
const Transport staged{"Staged",
                       [](Communicator& threads, Device& device) { return make_staged(threads, device, 24); },
                       {{Priority::high, Priority::normal}, {Priority::normal, Priority::high}}};

class OnALazyDevice : public testing::TestWithParam<Transport> {
 public:
  static std::vector<std::vector<double>> verbs(Communicator& threads, LazyDevice& device) {
    return all_verbs(*GetParam().make(threads, device), device);
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, OnALazyDevice, testing::Values(device_threads, staged),
                         [](const auto& transport) { return transport.param.name; });

TEST(LazyDevice, FindsAMissingEvent) {
  for (const bool ordered : {true, false}) {
    LazyDevice device(1);
    const DeviceRank rank(device);
    const Stream other = device.make_stream(Priority::high);
    const auto values = block(0, verb_elements);
    const Tensor x = rank.upload(values), y = rank.tensor(verb_elements);
    if (ordered) device.wait(other, device.record(rank.stream));
    device.copy(x.data(), y.data(), static_cast<std::size_t>(x.bytes()), other);
    const std::string message = message_of([&] { device.check(); });
    if (ordered)
      EXPECT_EQ(message, "");
    else
      EXPECT_NE(message.find("touch the same bytes, without an event"), std::string::npos) << message;
  }
}

TEST(LazyDevice, FindsMemoryThatIsUsedAgainTooEarly) {
  for (const bool ordered : {true, false}) {
    LazyDevice device(2);
    const DeviceRank rank(device);
    const Stream other = device.make_stream(Priority::high);
    const auto values = block(0, verb_elements);
    const Tensor y = rank.tensor(verb_elements);
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

// The CPU hands out the same bytes again. What touched them before is done by then, though no event says so.
TEST(LazyDevice, StagingMemoryThatIsUsedAgainGivesNoAlarm) {
  LazyDevice device(3);
  const DeviceRank rank(device);
  const Stream streams[] = {rank.stream, device.make_stream(Priority::high)};
  // of a size that the allocator of the CPU hands out at the same place
  const Tensor x = rank.tensor(1 << 20), y = rank.tensor(1 << 20);
  const Tensor* const targets[] = {&x, &y};
  const auto bytes = static_cast<std::size_t>(x.bytes());
  for (int use = 0; use < 20; ++use) {
    void* const data = device.staging().allocate(bytes);
    device.copy(targets[use % 2]->data(), data, bytes, streams[use % 2]);
    device.staging().release(data);
  }
  EXPECT_NO_THROW(device.check());
}

TEST(LazyDevice, DoesNotLetTheCpuTouchItsMemory) {
  LazyDevice device(3);
  const DeviceRank rank(device);
  const Tensor x = rank.tensor(verb_elements);
  x.zero(rank.stream);
  device.finish(rank.stream);
  EXPECT_DEATH(x.as<double>(), "the CPU may not access a tensor in the memory of a device");
  EXPECT_DEATH(static_cast<void>(*static_cast<volatile std::byte*>(x.data())), "");
}

// Each block takes whole pages of 4096 bytes.
TEST(LazyDevice, MemoryThatRunsOutIsNamedAfterKeptMemoryIsGivenBack) {
  LazyDevice device(4);
  device.limit_memory(3 * 4096);
  const auto allocator = std::make_shared<Allocator>(device);
  const auto flat = [&](Index elements, MemoryClass memory) {
    return Tensor(DType::f64, "F", Box(Shape{{'F', elements}}), allocator, memory, Fill::none);
  };
  const Tensor weights = flat(100, MemoryClass::weights);
  { const Tensor kept = flat(1000, MemoryClass::activations); }
  const Tensor other = flat(200, MemoryClass::gradients);  // takes the place of what was kept
  EXPECT_EQ(device.blocks(), 2U);
  const std::string message = message_of([&] { flat(1000, MemoryClass::activations); });
  EXPECT_EQ(message,
            "out of memory: 7.8 KiB for activations could not be allocated beside 2.3 KiB of tensors (weights 800 B, "
            "gradients 1.6 KiB); the lazy device has little left; use more ranks, a smaller --batch or `recompute` in "
            "the strategy, and let --memory-limit check the size");
}

TEST_P(OnALazyDevice, AllVerbsAreRightInEveryOrder) {
  for (int seed = 0; seed < seeds(); ++seed)
    for (int p = 1; p <= 4; ++p) {
      LazyDevice device(static_cast<unsigned>(seed));
      run_threads(p, [&](Communicator& threads) {
        EXPECT_EQ(verbs(threads, device), expected_of_verbs(p)) << "seed " << seed;
      });
      EXPECT_NO_THROW(device.check()) << "seed " << seed << ", " << p << " ranks";
    }
}

// The streams of messages wait for computing, computing for messages, and between DeviceThreads messages for those of
// other ranks. Without one of these kinds of events, every run races, whichever rank comes first to a message.
TEST_P(OnALazyDevice, EveryMissingKindOfEventIsFoundInEveryRun) {
  for (const auto& [waiter, awaited] : GetParam().needed)
    for (int seed = 0; seed < seeds(); ++seed)
      for (int p = 2; p <= 4; ++p) {
        LazyDevice device(static_cast<unsigned>(seed));
        device.forget_waits(waiter, awaited);
        const std::string message = message_of([&] {
          run_threads(p, [&](Communicator& threads) { verbs(threads, device); });
          device.check();
        });
        EXPECT_NE(message.find("touch the same bytes, without an event"), std::string::npos)
            << message << ": seed " << seed << ", " << p << " ranks";
      }
}

// Leaves out one event after the other. Many are not needed, since others order the same operations.
TEST_P(OnALazyDevice, AnEventThatIsNotNeededGivesNoAlarm) {
  bool exists = true;
  for (int call = 1; exists; call += short_run() ? 4 : 1) {
    LazyDevice device(static_cast<unsigned>(call));
    device.forget_wait(call);
    const std::string message = message_of([&] {
      run_threads(3, [&](Communicator& threads) {
        if (verbs(threads, device) != expected_of_verbs(3)) fail("wrong numbers");
      });
      device.check();
    });
    exists = device.waits() >= call;
    EXPECT_TRUE(message.empty() || device.missed()) << message;
  }
}

TEST_P(OnALazyDevice, EveryCallMayFail) {
  int calls = 0;
  {
    LazyDevice device(0);
    run_threads(2, [&](Communicator& threads) { verbs(threads, device); });
    calls = device.calls();
  }
  for (int call = 1; call <= calls; call += std::max(1, calls / 40)) {
    LazyDevice device(static_cast<unsigned>(call));
    device.fail_at(call);
    const std::string message = message_of([&] { run_threads(2, [&](Communicator& c) { verbs(c, device); }); });
    EXPECT_NE(message.find(fmt::format("the call {} of the device fails", call)), std::string::npos) << message;
  }
}

// They go in blocks, which each rank sums in several turns and then sends to all.
TEST(DeviceThreadsOnALazyDevice, LongSumsAreRightInEveryOrder) {
  constexpr Index count = 70001;
  for (int seed = 0; seed < seeds(); ++seed)
    for (const int p : {3, 4}) {
      LazyDevice device(static_cast<unsigned>(seed));
      run_threads(p, [&](Communicator& threads) {
        const auto comm = make_device_threads(threads, device, std::chrono::seconds(20), 1 << 16);
        const Stream stream = device.make_stream(Priority::normal);
        const Box box(Shape{{'F', count}});
        const Tensor values(DType::f32, "F", box, std::make_shared<Allocator>(device, 0, stream),
                            MemoryClass::gradients);
        const Tensor mine(DType::f32, "F", box, std::make_shared<Allocator>(device.staging()), MemoryClass::gradients);
        for (Index i = 0; i < count; ++i) mine.as<float>()[i] = static_cast<float>(i % 97 * (threads.rank() + 1));
        from_host(mine, values, stream);
        comm->all_reduce(values.data(), count, DType::f32, ReduceOp::sum, stream).wait(stream);
        const std::vector<double> sums = read(values, stream);
        for (Index i = 0; i < count; ++i) ASSERT_EQ(sums[i], static_cast<double>(i % 97 * p * (p + 1) / 2)) << i;
      });
      EXPECT_NO_THROW(device.check()) << "seed " << seed << ", " << p << " ranks";
    }
}

TEST(DeviceThreadsOnALazyDevice, CommunicatorsInAnotherOrderAreNamed) {
  LazyDevice device(5);
  const std::string message = message_of([&] {
    run_threads(2, [&](Communicator& threads) {
      const auto comm = make_device_threads(threads, device, std::chrono::milliseconds(300));
      const auto one = comm->split(0, comm->rank()), two = comm->split(0, comm->rank());
      const DeviceRank rank(device);
      const auto values = block(comm->rank(), verb_elements);
      const Tensor a = rank.upload(values), b = rank.upload(values);
      const bool first = comm->rank() == 0;
      (first ? one : two)
          ->all_reduce(a.data(), verb_elements, DType::f64, ReduceOp::sum, rank.stream)
          .wait(rank.stream);
      (first ? two : one)
          ->all_reduce(b.data(), verb_elements, DType::f64, ReduceOp::sum, rank.stream)
          .wait(rank.stream);
    });
  });
  EXPECT_NE(message.find("do all ranks use their communicators in one order?"), std::string::npos) << message;
}

}  // namespace partita::test::lazy_device_test
