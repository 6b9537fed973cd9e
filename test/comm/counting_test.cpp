#include "partita/comm/counting.hpp"

#include "src/comm/threads/threads.hpp"
#include "test/support/collectives.hpp"

namespace partita::test::counting_test {

namespace {

using Counts = std::map<std::pair<std::string, Verb>, Traffic>;

/// Runs each collective once, with `elements` floats in total.
void run_collectives(Communicator& comm, Index elements) {
  std::vector<Index> counts(static_cast<std::size_t>(comm.size()), 0);
  counts.back() = elements;
  std::vector<float> a(5), b(5);
  comm.all_reduce(a.data(), elements, DType::f32, ReduceOp::sum, {}).wait();
  comm.all_gather(a.data(), b.data(), counts, DType::f32, {}).wait();
  comm.reduce_scatter(a.data(), b.data(), counts, DType::f32, {}).wait();
  comm.broadcast(a.data(), elements, DType::f32, 0, {}).wait();
}

Counts each_collective(const std::string& label, Traffic traffic) {
  Counts counts;
  for (const Verb verb : {Verb::all_reduce, Verb::all_gather, Verb::reduce_scatter, Verb::broadcast})
    counts[{label, verb}] = traffic;
  return counts;
}

}  // namespace

TEST(Counting, ChangesNothing) {
  for (int ranks = 1; ranks <= 5; ++ranks)
    run_threads(ranks,
                [](Communicator& comm) { check_transport(*counting(comm, std::make_shared<TrafficCounter>())); });
}

TEST(Counting, CollectivesCountTheirFullVector) {
  run_threads(3, [](Communicator& comm) {
    const auto counter = std::make_shared<TrafficCounter>();
    const auto counted = counting(comm, counter);
    counter->set_label("conv1");
    run_collectives(*counted, 5);
    EXPECT_EQ(counter->by_label(), each_collective("conv1", {1, 20}));
    run_collectives(*counted, 5);
    EXPECT_EQ(counter->by_label(), each_collective("conv1", {2, 40}));
    EXPECT_EQ(counter->total(), (Traffic{8, 160}));
    counter->reset();
    EXPECT_EQ(counter->total(), Traffic{});
  });
}

TEST(Counting, AllToAllCountsWhatTheRankSends) {
  run_threads(3, [](Communicator& comm) {
    const auto counter = std::make_shared<TrafficCounter>();
    // Rank r sends r floats to everyone, itself included.
    const std::vector<Index> send_counts(3, comm.rank()), recv_counts{0, 1, 2};
    const std::vector<float> send(6);
    std::vector<float> recv(3);
    counting(comm, counter)->all_to_all(send.data(), send_counts, recv.data(), recv_counts, DType::f32, {}).wait();
    EXPECT_EQ(counter->total(), comm.rank() == 0 ? Traffic{} : (Traffic{1, 12 * comm.rank()}));
  });
}

TEST(Counting, NothingToMoveCountsNothing) {
  run_threads(2, [](Communicator& comm) {
    const auto counter = std::make_shared<TrafficCounter>();
    const auto counted = counting(comm, counter);
    run_collectives(*counted, 0);                         // no elements
    run_collectives(*counted->split(comm.rank(), 0), 5);  // no peers
    counted->exchange({}, {}, {}).wait();                 // no messages
    EXPECT_EQ(counter->by_label(), Counts{});
  });
}

TEST(Counting, ExchangesCountNonemptyMessagesSent) {
  run_threads(2, [](Communicator& comm) {
    const auto counter = std::make_shared<TrafficCounter>();
    const auto counted = counting(comm, counter);
    const int peer = 1 - comm.rank();
    // Rank 0 sends 2, 0 and 3 doubles; rank 1 sends none.
    std::vector<double> two(2), none, three(3);
    if (comm.rank() == 0) {
      const Send sends[] = {{peer, bytes(two)}, {peer, bytes(none)}, {peer, bytes(three)}};
      counted->exchange(sends, {}, {}).wait();
    } else {
      const Recv recvs[] = {{peer, writable(two)}, {peer, writable(none)}, {peer, writable(three)}};
      counted->exchange({}, recvs, {}).wait();
    }
    EXPECT_EQ(counter->total(), comm.rank() == 0 ? (Traffic{2, 40}) : Traffic{});
  });
}

TEST(Counting, SplitsCountToo) {
  run_threads(4, [](Communicator& comm) {
    const auto counter = std::make_shared<TrafficCounter>();
    const auto half = counting(comm, counter)->split(comm.rank() % 2, 0);
    EXPECT_EQ(counter->total(), Traffic{}) << "a split itself must count nothing";
    counter->set_label("fc");
    run_collectives(*half, 2);
    EXPECT_EQ(counter->by_label(), each_collective("fc", {1, 8}));
  });
}

TEST(Counting, CountsOnceMoreWhatWasCountedSince) {
  TrafficCounter counter;
  counter.set_label("a");
  counter.add(Verb::exchange, {2, 20});
  const TrafficCounter before = counter;
  counter.add(Verb::exchange, {1, 5});
  counter.set_label("b");
  counter.add(Verb::all_reduce, {1, 8});
  const TrafficCounter more = counter.since(before);
  EXPECT_EQ(more.by_label(), (Counts{{{"a", Verb::exchange}, {1, 5}}, {{"b", Verb::all_reduce}, {1, 8}}}));
  counter.add(more);
  EXPECT_EQ(counter.by_label(), (Counts{{{"a", Verb::exchange}, {4, 30}}, {{"b", Verb::all_reduce}, {2, 16}}}));
}

}  // namespace partita::test::counting_test
