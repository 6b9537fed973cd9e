// Communicators by NCCL, with a stand-in for the library on the test double of a device.
#include "src/comm/device/nccl_watch.hpp"
#include "src/comm/threads/threads.hpp"
#include "test/support/device_verbs.hpp"
#include "test/support/error_of.hpp"
#include "test/support/lazy_nccl.hpp"

#include <cstdlib>
#include <thread>

namespace partita::test::nccl_test {
namespace {

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
bool right(Communicator& threads, LazyDevice& device, const std::shared_ptr<LazyWire>& wire) {
  LazyNccl library(device, wire);
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
      const auto wire = std::make_shared<LazyWire>();
      run_threads(p, [&](Communicator& threads) { EXPECT_TRUE(right(threads, device, wire)) << "seed " << seed; });
      EXPECT_NO_THROW(device.check()) << "seed " << seed << ", " << p << " ranks";
    }
}

TEST(Nccl, EveryMissingKindOfEventIsFound) {
  using enum Priority;
  for (const auto& [waiter, awaited] : {std::pair{high, normal}, {normal, high}})
    for (unsigned seed = 0; seed < 5; ++seed) {
      LazyDevice device(seed);
      device.forget_waits(waiter, awaited);
      const auto wire = std::make_shared<LazyWire>();
      const std::string message = message_of([&] {
        run_threads(3, [&](Communicator& threads) { right(threads, device, wire); });
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
  Comm split(Comm, int, int) override { throw DeviceError("NCCL cannot split a communicator"); }
  void end(Comm) override {}
  void abort(Comm) override {}
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
  LazyNccl library(device, std::make_shared<LazyWire>());
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
    {
      const NcclWatch::Connecting connecting(watch);
      EXPECT_EQ(looks(NcclWatch::patience - 1), fine);
      EXPECT_EQ(looks(1), lost) << "a rank that does not come";
    }
    EXPECT_EQ(looks(2 * NcclWatch::patience), fine) << "all have come";
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
    watch.remove(comm);
    device.finish(stream);
    EXPECT_EQ(watch.look().first, fine) << "a communicator that has ended";
  });
}

TEST(NcclDeathTest, AFailureElsewhereEndsTheJobWhileTheRankWaits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto wait_forever = [](bool fails) {
    LazyDevice device(1);
    LazyNccl library(device, std::make_shared<LazyWire>());
    run_threads(1, [&](Communicator& threads) {
      const auto comm = make_nccl(threads, device, library, std::chrono::milliseconds(200));
      if (fails) library.fail_elsewhere();
      double number = 1;
      const auto under_way = comm->all_reduce(&number, 0, DType::f64, ReduceOp::sum, {});
      std::this_thread::sleep_for(std::chrono::minutes(5));
    });
  };
  const auto wait_for_graph = [] {
    LazyDevice device(1);
    LazyNccl library(device, std::make_shared<LazyWire>());
    run_threads(1, [&](Communicator& threads) {
      const DeviceRank rank(device);
      const Tensor number = rank.tensor(1);
      const auto comm = make_nccl(threads, device, library, std::chrono::milliseconds(200));
      const auto graph = capture(device, rank.stream, [&] {
        comm->all_reduce(number.data(), 1, DType::f64, ReduceOp::sum, rank.stream).wait(rank.stream);
      });
      graph->launch({});
      comm->launched();
      std::this_thread::sleep_for(std::chrono::seconds(20));
    });
  };
  EXPECT_DEATH(wait_forever(true), "NCCL has failed: remote process");
  EXPECT_DEATH(wait_forever(false), "for other ranks");
  EXPECT_DEATH(wait_for_graph(), "for other ranks");
}

TEST(Nccl, PartsHaveTheRanksOfTheirColorInTheOrderOfTheirKeys) {
  LazyDevice device(1);
  const auto wire = std::make_shared<LazyWire>();
  run_threads(5, [&](Communicator& threads) {
    LazyNccl library(device, wire);
    {
      const auto comm = make_nccl(threads, device, library);
      const int rank = comm->rank(), color = rank % 2;
      const auto part = comm->split(color, -rank);
      ASSERT_EQ(part->size(), color == 0 ? 3 : 2);
      EXPECT_EQ(part->rank(), color == 0 ? (4 - rank) / 2 : (3 - rank) / 2);
      const DeviceRank on(device);
      const Tensor mine = on.upload({double(rank)}), all = on.tensor(part->size());
      const std::vector<Index> counts(static_cast<std::size_t>(part->size()), 1);
      part->all_gather(mine.data(), all.data(), counts, DType::f64, on.stream).wait(on.stream);
      EXPECT_EQ(read(all, on.stream), color == 0 ? std::vector<double>({4, 2, 0}) : std::vector<double>({3, 1}));
    }
    EXPECT_EQ(library.ended(), 2);
    EXPECT_EQ(library.aborted(), 0);
  });
}

TEST(Nccl, ARankThatFailsAbortsItsCommunicators) {
  LazyDevice device(1);
  const auto wire = std::make_shared<LazyWire>();
  run_threads(2, [&](Communicator& threads) {
    LazyNccl library(device, wire);
    EXPECT_THROW(
        {
          const auto comm = make_nccl(threads, device, library);
          const auto part = comm->split(0, comm->rank());
          fail("this rank has failed");
        },
        Error);
    EXPECT_EQ(library.ended(), 0);
    EXPECT_EQ(library.aborted(), 2);
  });
}

TEST(Nccl, AStartThatFailsEndsAllRanks) {
  LazyDevice device(1);
  BrokenNccl library;
  const std::string message =
      message_of([&] { run_threads(3, [&](Communicator& threads) { make_nccl(threads, device, library); }); });
  EXPECT_NE(message.find("NCCL cannot"), std::string::npos) << message;
}

}  // namespace
}  // namespace partita::test::nccl_test
