// Communicators by NCCL, with a stand-in for the library on the test double of a device.
#include "src/comm/nccl_communicator.hpp"

#include "partita/comm/device_threads.hpp"
#include "partita/comm/threads.hpp"
#include "src/comm/nccl_watch.hpp"
#include "test/support/device_verbs.hpp"
#include "test/support/error_of.hpp"

#include <cstdlib>
#include <list>
#include <thread>

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
  std::string error(Comm) override { return error_; }
  void end(Comm comm) override { of(comm).between.reset(); }
  /// From now on, a failure of another rank is known.
  void fail_elsewhere() { error_ = "remote process exited or there was a network error"; }

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
  void all_gather(const void* local, void* all, Index count, DType dtype, Comm comm, Stream stream) override {
    auto& between = *of(comm).between;
    const std::vector<Index> counts(static_cast<std::size_t>(between.size()), count);
    between.all_gather(local, all, counts, dtype, stream).wait(stream);
  }
  void reduce_scatter(const void* all, void* local, Index count, DType dtype, Comm comm, Stream stream) override {
    auto& between = *of(comm).between;
    const std::vector<Index> counts(static_cast<std::size_t>(between.size()), count);
    between.reduce_scatter(all, local, counts, dtype, stream).wait(stream);
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
  std::string error_;
  bool grouping_ = false;
  std::list<Connected> comms_;
};

/// Shares of a sum that are equally long, and their concatenation: NCCL has collectives for these. True if the numbers
/// are right.
bool equal_shares_are_right(Communicator& comm, LazyDevice& device) {
  const DeviceRank rank(device);
  const int p = comm.size();
  const Index share = verb_elements / p;
  const std::vector<Index> counts(static_cast<std::size_t>(p), share);
  const auto values = block(comm.rank(), share * p);
  const Tensor all = rank.upload(values), mine = rank.tensor(share);
  comm.reduce_scatter(all.data(), mine.data(), counts, DType::f64, rank.stream).wait(rank.stream);
  comm.all_gather(mine.data(), all.data(), counts, DType::f64, rank.stream).wait(rank.stream);
  std::vector<double> sum(static_cast<std::size_t>(share * p));
  for (int r = 0; r < p; ++r)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += block(r, share * p)[i];
  return read(all, rank.stream) == sum;
}

/// Runs the verbs on all ranks, and on a part that holds all of them. True if the numbers are right.
bool right(Communicator& threads, LazyDevice& device) {
  FalseNccl library(device);
  const auto comm = make_nccl(threads, device, library);
  const auto part = comm->split(0, comm->rank());
  const bool of_part = all_verbs(*part, device) == expected_of_verbs(comm->size());
  return all_verbs(*comm, device) == expected_of_verbs(comm->size()) && of_part &&
         equal_shares_are_right(*comm, device);
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
  Id make_id() override { throw DeviceError("NCCL cannot start: there is no network"); }
  Comm start(const Id&, Communicator&) override { throw DeviceError("NCCL cannot connect the ranks"); }
  std::string error(Comm) override { return ""; }
  void end(Comm) override {}
  void group_start() override {}
  void group_end() override {}
  void send(const void*, Index, DType, int, Comm, Stream) override {}
  void recv(void*, Index, DType, int, Comm, Stream) override {}
  void all_reduce(void*, Index, DType, ReduceOp, Comm, Stream) override {}
  void all_gather(const void*, void*, Index, DType, Comm, Stream) override {}
  void reduce_scatter(const void*, void*, Index, DType, Comm, Stream) override {}
  void reduce(const void*, void*, Index, DType, int, Comm, Stream) override {}
  void broadcast(const void*, void*, Index, DType, int, Comm, Stream) override {}
};

TEST(Nccl, TheWatchFindsLostMessagesAndFailuresElsewhere) {
  using enum NcclWatch::Finding;
  LazyDevice device(1);
  FalseNccl library(device);
  NcclWatch watch(library, device);
  run_threads(1, [&](Communicator& threads) {
    const auto comm = library.start({}, threads);
    watch.add(comm);
    const Stream stream = device.make_stream(Priority::high);
    const auto looks = [&](int count) {
      auto found = fine;
      for (int i = 0; i < count; ++i) found = watch.look().first;
      return found;
    };
    EXPECT_EQ(looks(2 * NcclWatch::patience), fine) << "nothing is under way";
    watch.started(device.record(stream));
    EXPECT_EQ(looks(NcclWatch::patience - 1), fine);
    device.finish(stream);
    EXPECT_EQ(looks(2 * NcclWatch::patience), fine) << "it has arrived";
    watch.started(device.record(stream));
    EXPECT_EQ(looks(NcclWatch::patience - 1), fine);
    EXPECT_EQ(looks(1), lost);
    library.fail_elsewhere();
    EXPECT_EQ(watch.look().first, failed);
    EXPECT_NE(watch.look().second.find("remote process"), std::string::npos);
    watch.end(comm);
    device.finish(stream);
    EXPECT_EQ(watch.look().first, fine) << "a communicator that has ended";
  });
}

TEST(NcclDeathTest, AFailureElsewhereEndsTheJobWhileTheRankWaits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto wait_forever = [](bool fails) {
    LazyDevice device(1);
    FalseNccl library(device);
    run_threads(1, [&](Communicator& threads) {
      const auto comm = make_nccl(threads, device, library, std::chrono::milliseconds(200));
      if (fails) library.fail_elsewhere();
      double number = 1;
      const auto under_way = comm->all_reduce(&number, 0, DType::f64, ReduceOp::sum, {});
      std::this_thread::sleep_for(std::chrono::minutes(5));
    });
  };
  EXPECT_DEATH(wait_forever(true), "NCCL has failed: remote process");
  EXPECT_DEATH(wait_forever(false), "for other ranks");
}

TEST(Nccl, AStartThatFailsEndsAllRanks) {
  LazyDevice device(1);
  BrokenNccl library;
  const std::string message =
      message_of([&] { run_threads(3, [&](Communicator& threads) { make_nccl(threads, device, library); }); });
  EXPECT_NE(message.find("NCCL cannot"), std::string::npos) << message;
}

}  // namespace
}  // namespace partita::test
