// Communicators by NCCL, with a stand-in for the library on the test double of a device.
#include "src/comm/nccl_communicator.hpp"

#include "partita/comm/device_threads.hpp"
#include "partita/comm/threads.hpp"
#include "test/support/device_verbs.hpp"
#include "test/support/error_of.hpp"

#include <cstdlib>
#include <list>

namespace partita::test {
namespace {

/// NCCL's calls on one rank, by copies between devices. As with NCCL, messages start when their group ends.
class FalseNccl final : public NcclLibrary {
 public:
  explicit FalseNccl(LazyDevice& device) : device_(device) {}

  Id make_id() override { return {1}; }
  Comm start(const Id&, Communicator& host) override {
    return &comms_.emplace_back(Connected{make_device_threads(host, device_, std::chrono::seconds(20)), {}, {}, {}});
  }
  void end(Comm comm) override { of(comm).between.reset(); }

  void group_start() override { EXPECT_FALSE(std::exchange(grouping_, true)) << "groups must not overlap"; }
  void group_end() override {
    EXPECT_TRUE(std::exchange(grouping_, false));
    for (Connected& comm : comms_) {
      if (!comm.sends.empty() || !comm.recvs.empty())
        comm.between->exchange(comm.sends, comm.recvs, comm.stream).wait(comm.stream);
      comm.sends.clear();
      comm.recvs.clear();
    }
  }
  void send(const void* from, Index count, DType dtype, int peer, Comm comm, Stream stream) override {
    of(comm).stream = stream;
    of(comm).sends.push_back({peer, {static_cast<const std::byte*>(from), bytes(count, dtype)}});
  }
  void recv(void* to, Index count, DType dtype, int peer, Comm comm, Stream stream) override {
    of(comm).stream = stream;
    of(comm).recvs.push_back({peer, {static_cast<std::byte*>(to), bytes(count, dtype)}});
  }
  void all_reduce(void* data, Index count, DType dtype, ReduceOp op, Comm comm, Stream stream) override {
    of(comm).between->all_reduce(data, count, dtype, op, stream).wait(stream);
  }
  void reduce(const void* from, void* to, Index count, DType dtype, int root, Comm comm, Stream stream) override {
    auto& between = *of(comm).between;
    std::vector<Index> counts(static_cast<std::size_t>(between.size()));
    counts[static_cast<std::size_t>(root)] = count;
    between.reduce_scatter(from, to, counts, dtype, stream).wait(stream);
  }
  void broadcast(const void* from, void* to, Index count, DType dtype, int root, Comm comm, Stream stream) override {
    auto& between = *of(comm).between;
    if (between.rank() == root && from != to) device_.copy(from, to, bytes(count, dtype), stream);
    between.broadcast(to, count, dtype, root, stream).wait(stream);
  }

 private:
  struct Connected {
    std::shared_ptr<Communicator> between;
    std::vector<Send> sends;
    std::vector<Recv> recvs;
    Stream stream;
  };
  static Connected& of(Comm comm) { return *static_cast<Connected*>(comm); }
  static std::size_t bytes(Index count, DType dtype) { return static_cast<std::size_t>(count * size_of(dtype)); }

  LazyDevice& device_;
  bool grouping_ = false;
  std::list<Connected> comms_;
};

/// Runs the verbs on all ranks, and on a part that holds all of them. True if the numbers are right.
bool right(Communicator& threads, LazyDevice& device) {
  FalseNccl library(device);
  const auto comm = make_nccl(threads, device, library);
  const auto part = comm->split(0, comm->rank());
  const bool of_part = all_verbs(*part, device) == expected_of_verbs(comm->size());
  return all_verbs(*comm, device) == expected_of_verbs(comm->size()) && of_part;
}

TEST(Nccl, AllVerbsAreRightInEveryOrder) {
  for (unsigned seed = 0; seed < (std::getenv("PARTITA_LONG") == nullptr ? 5 : 200); ++seed)
    for (int p = 1; p <= 4; ++p) {
      LazyDevice device(seed);
      run_threads(p, [&](Communicator& threads) { EXPECT_TRUE(right(threads, device)) << "seed " << seed; });
      EXPECT_NO_THROW(device.check()) << "seed " << seed << ", " << p << " ranks";
    }
}

TEST(Nccl, EveryMissingKindOfEventIsFound) {
  using enum Priority;
  for (const auto& [waiter, awaited] : {std::pair{high, normal}, {normal, high}})
    for (unsigned seed = 0; seed < 5; ++seed) {
      LazyDevice device(seed);
      device.forget_waits(waiter, awaited);
      const std::string message = message_of([&] {
        run_threads(3, [&](Communicator& threads) { right(threads, device); });
        device.check();
      });
      EXPECT_NE(message.find("touch the same bytes, without an event"), std::string::npos) << message;
    }
}

/// NCCL fails, e.g. since a network card is missing.
class BrokenNccl final : public NcclLibrary {
 public:
  Id make_id() override { throw CommunicationError("NCCL cannot start: there is no network"); }
  Comm start(const Id&, Communicator&) override { throw CommunicationError("NCCL cannot connect the ranks"); }
  void end(Comm) override {}
  void group_start() override {}
  void group_end() override {}
  void send(const void*, Index, DType, int, Comm, Stream) override {}
  void recv(void*, Index, DType, int, Comm, Stream) override {}
  void all_reduce(void*, Index, DType, ReduceOp, Comm, Stream) override {}
  void reduce(const void*, void*, Index, DType, int, Comm, Stream) override {}
  void broadcast(const void*, void*, Index, DType, int, Comm, Stream) override {}
};

TEST(Nccl, AStartThatFailsEndsAllRanks) {
  LazyDevice device(1);
  BrokenNccl library;
  const std::string message =
      message_of([&] { run_threads(3, [&](Communicator& threads) { make_nccl(threads, device, library); }); });
  EXPECT_NE(message.find("NCCL cannot"), std::string::npos) << message;
}

}  // namespace
}  // namespace partita::test
