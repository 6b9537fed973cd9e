#include "test/support/collectives.hpp"
#include "partita/base/dispatch.hpp"
#include "partita/comm/counting.hpp"
#include "src/comm/textbook.hpp"
#include "src/comm/threads/threads.hpp"
#include "strategies/cost/collective_cost.hpp"
#include "test/support/collective_traffic.hpp"
#include "test/support/textbook_algorithms.hpp"

#include <numeric>

namespace partita::test::collectives_test {

namespace {

constexpr int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16};
constexpr Verb verbs[] = {Verb::all_reduce, Verb::all_gather, Verb::reduce_scatter, Verb::broadcast, Verb::all_to_all};

using Bytes = std::vector<std::byte>;

Bytes stored(const std::vector<double>& values, DType dtype) {
  Bytes bytes(values.size() * static_cast<std::size_t>(size_of(dtype)));
  dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    for (std::size_t i = 0; i < values.size(); ++i) reinterpret_cast<T*>(bytes.data())[i] = static_cast<T>(values[i]);
  });
  return bytes;
}

Index count_between(const CollectiveCall& call, int from, int to) { return call.counts[from * call.ranks + to]; }
Index total(const CollectiveCall& call) { return std::accumulate(call.counts.begin(), call.counts.end(), Index{0}); }

/// The number of elements that a rank contributes.
Index given(const CollectiveCall& call, int rank) {
  if (call.verb == Verb::all_gather) return call.counts[rank];
  if (call.verb != Verb::all_to_all) return total(call);
  Index sum = 0;
  for (int to = 0; to < call.ranks; ++to) sum += count_between(call, rank, to);
  return sum;
}

/// The elements that a rank contributes: integers whose sums over 16 ranks are exact in every dtype. They are larger if
/// the dtype has more than 2 bytes.
std::vector<double> input(const CollectiveCall& call, int rank) {
  const bool large = size_of(call.dtype) > 2;
  std::vector<double> values;
  for (Index i = 0; i < given(call, rank); ++i)
    values.push_back(large ? 10000.0 * rank + static_cast<double>(i) : static_cast<double>((5 * rank + 3 * i) % 11));
  return values;
}

/// Reduces the inputs of all ranks.
std::vector<double> combined(const CollectiveCall& call, ReduceOp op) {
  auto result = input(call, 0);
  for (int r = 1; r < call.ranks; ++r) {
    const auto more = input(call, r);
    for (std::size_t i = 0; i < result.size(); ++i)
      result[i] = op == ReduceOp::sum ? result[i] + more[i] : std::max(result[i], more[i]);
  }
  return result;
}

std::vector<double> part(const std::vector<double>& values, Index first, Index count) {
  return {values.begin() + first, values.begin() + first + count};
}

/// The elements that a rank must receive, computed serially.
std::vector<double> expected(const CollectiveCall& call, int rank, ReduceOp op) {
  const auto before = [&](int last) {
    return std::accumulate(call.counts.begin(), call.counts.begin() + last, Index{0});
  };
  switch (call.verb) {
    case Verb::all_reduce: return combined(call, op);
    case Verb::broadcast: return input(call, call.root);
    case Verb::reduce_scatter: return part(combined(call, op), before(rank), call.counts[rank]);
    default: break;
  }
  std::vector<double> all;
  for (int from = 0; from < call.ranks; ++from) {
    auto values = input(call, from);
    if (call.verb == Verb::all_to_all)
      values =
          part(values, before(from * call.ranks + rank) - before(from * call.ranks), count_between(call, from, rank));
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

/// Runs the collective. `result` already has the right size.
void run(Communicator& comm, const CollectiveCall& call, ReduceOp op, const Bytes& in, Bytes& result) {
  switch (call.verb) {
    case Verb::all_reduce:
      result = in;
      return test::all_reduce(comm, result.data(), call.counts[0], call.dtype, op, call.algorithm);
    case Verb::broadcast:
      result = in;
      return test::broadcast(comm, result.data(), call.counts[0], call.dtype, call.root, call.algorithm);
    case Verb::all_gather:
      return test::all_gather(comm, in.data(), result.data(), call.counts, call.dtype, call.algorithm);
    case Verb::reduce_scatter:
      return test::reduce_scatter(comm, in.data(), result.data(), call.counts, call.dtype, call.algorithm);
    default: test::all_to_all(comm, in.data(), result.data(), call.counts, call.dtype, call.algorithm);
  }
}

std::string describe(const CollectiveCall& call) {
  return fmt::format("{} {} of {} [{}] over {} ranks, root {}", name(call.verb), name(call.algorithm), name(call.dtype),
                     fmt::join(call.counts, " "), call.ranks, call.root);
}

/// Equal, empty and unequal counts, one per block.
std::vector<std::vector<Index>> block_counts(std::size_t blocks) {
  std::vector<std::vector<Index>> all{std::vector<Index>(blocks, 0), std::vector<Index>(blocks, 1),
                                      std::vector<Index>(blocks, 6)};
  for (const int factor : {5, 7, 13}) {
    all.emplace_back();
    for (std::size_t i = 0; i < blocks; ++i)
      all.back().push_back(static_cast<Index>((i * i + 3 * i) * static_cast<std::size_t>(factor) % 17 % 7));
  }
  for (const std::size_t only : {std::size_t{0}, blocks / 2, blocks - 1}) {
    all.emplace_back(blocks, 0);
    all.back()[only] = 11;
  }
  return all;
}

/// All calls of a collective that are tested on `ranks` ranks.
std::vector<CollectiveCall> calls(Verb verb, int ranks) {
  const auto p = static_cast<std::size_t>(ranks);
  std::vector<std::vector<Index>> counts;
  if (verb == Verb::all_reduce || verb == Verb::broadcast)
    counts = {{0}, {1}, {2}, {13}, {ranks - 1}, {ranks}, {ranks + 1}, {7 * ranks}, {1009}};
  else
    counts = block_counts(verb == Verb::all_to_all ? p * p : p);
  std::vector<CollectiveCall> all;
  for (const CollectiveAlgorithm algorithm : algorithms(verb))
    for (const auto& each : counts)
      for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i32})
        for (const int root : {0, ranks / 3, ranks - 1}) {
          if (root > 0 && verb != Verb::broadcast) continue;
          all.push_back({verb, algorithm, ranks, each, dtype, root});
        }
  return all;
}

/// Computes the time of exchanges on an ideal network. A message of b bytes takes alpha + b * beta, and a rank sends
/// and receives at the same time. An exchange waits only for its senders: each message carries the time at which it was
/// sent.
class Clock final : public Communicator {
 public:
  Clock(Communicator& inner, double alpha, double beta) : inner_(inner), alpha_(alpha), beta_(beta) {}
  double now() const { return now_; }
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }

  Request exchange(std::span<const Send> sends, std::span<const Recv> recvs, Stream stream) override {
    std::vector<double> start(recvs.size(), now_);
    const std::vector<double> mine{now_};
    std::vector<Send> times_out;
    std::vector<Recv> times_in;
    std::size_t out = 0, in = 0;
    for (const auto& send : sends) {
      times_out.push_back({send.peer, bytes(mine)});
      out += send.data.size();
    }
    for (std::size_t i = 0; i < recvs.size(); ++i) {
      times_in.push_back({recvs[i].peer, std::as_writable_bytes(std::span(start).subspan(i, 1))});
      in += recvs[i].data.size();
    }
    if (out + in == 0) return {};
    inner_.exchange(times_out, times_in, stream).wait();
    inner_.exchange(sends, recvs, stream).wait();
    for (const double time : start) now_ = std::max(now_, time);
    now_ += alpha_ + beta_ * static_cast<double>(std::max(out, in));
    return {};
  }

  Request all_reduce(void*, Index, DType, ReduceOp, Stream) override { broken("only exchanges are timed"); }
  Request all_gather(const void*, void*, std::span<const Index>, DType, Stream) override {
    broken("only exchanges are timed");
  }
  Request reduce_scatter(const void*, void*, std::span<const Index>, DType, Stream) override {
    broken("only exchanges are timed");
  }
  Request broadcast(void*, Index, DType, int, Stream) override { broken("only exchanges are timed"); }
  Request all_to_all(const void*, std::span<const Index>, void*, std::span<const Index>, DType, Stream) override {
    broken("only exchanges are timed");
  }
  std::shared_ptr<Communicator> split(int, int) override { broken("only exchanges are timed"); }

 private:
  Communicator& inner_;
  double alpha_, beta_, now_ = 0;
};

/// A call whose blocks are equal in every algorithm.
CollectiveCall equal_blocks(Verb verb, CollectiveAlgorithm algorithm, int ranks) {
  const auto p = static_cast<std::size_t>(ranks);
  if (verb == Verb::all_reduce || verb == Verb::broadcast)
    return {verb, algorithm, ranks, {Index{3} * ranks * Fold(ranks).core}, DType::f32, ranks / 3};
  return {verb, algorithm, ranks, std::vector<Index>(verb == Verb::all_to_all ? p * p : p, 5), DType::f32, 0};
}

/// The time on the ideal network until the last rank has completed the call.
double clocked(Communicator& comm, const CollectiveCall& call, double alpha, double beta) {
  Clock clock(comm, alpha, beta);
  const Bytes in = stored(input(call, comm.rank()), call.dtype);
  Bytes result = stored(expected(call, comm.rank(), ReduceOp::sum), call.dtype);
  run(clock, call, ReduceOp::sum, in, result);
  double last = clock.now();
  comm.all_reduce(&last, 1, DType::f64, ReduceOp::max, {}).wait();
  return last;
}

}  // namespace

TEST(Collectives, EveryAlgorithmDeliversAndSendsWhatTheClosedFormsSay) {
  for (const int ranks : rank_counts)
    run_threads(ranks, [ranks](Communicator& comm) {
      const auto counter = std::make_shared<TrafficCounter>();
      const auto counted = counting(comm, counter);
      for (const Verb verb : verbs)
        for (const auto& call : calls(verb, ranks))
          for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
            if (op == ReduceOp::max && verb != Verb::all_reduce) continue;
            const Bytes right = stored(expected(call, comm.rank(), op), call.dtype);
            Bytes result(right.size());
            counter->reset();
            run(*counted, call, op, stored(input(call, comm.rank()), call.dtype), result);
            ASSERT_EQ(result, right) << describe(call) << ", rank " << comm.rank();
            ASSERT_EQ(counter->total(), collective_traffic(call, comm.rank()))
                << describe(call) << ", rank " << comm.rank();
          }
    });
}

TEST(Collectives, ReplicasOfASumAgreeBitForBit) {
  for (const int ranks : rank_counts)
    run_threads(ranks, [ranks](Communicator& comm) {
      constexpr Index count = 61;
      for (const CollectiveAlgorithm algorithm : algorithms(Verb::all_reduce))
        for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
          std::vector<double> values;  // their sums depend on the order in every dtype
          for (Index i = 0; i < count; ++i)
            values.push_back(static_cast<double>((comm.rank() * 37 + i * 11) % 23 - 11) / 7 *
                             ((comm.rank() + i) % 3 == 0 ? 1000 : 1));
          Bytes sum = stored(values, dtype);
          test::all_reduce(comm, sum.data(), count, dtype, ReduceOp::sum, algorithm);
          Bytes all(sum.size() * static_cast<std::size_t>(ranks));
          textbook::all_gather(comm, sum.data(), all.data(), std::vector<Index>(static_cast<std::size_t>(ranks), count),
                               dtype);
          for (int r = 0; r < ranks; ++r)
            ASSERT_TRUE(std::equal(sum.begin(), sum.end(), all.begin() + r * static_cast<Index>(sum.size())))
                << name(algorithm) << " of " << name(dtype) << ", ranks " << comm.rank() << " and " << r;
        }
    });
}

TEST(Collectives, TakeAsManyRoundsAndBytesOnTheirLongestPathAsTheCostSays) {
  for (const int ranks : rank_counts)
    run_threads(ranks, [ranks](Communicator& comm) {
      for (const Verb verb : verbs)
        for (const CollectiveAlgorithm algorithm : algorithms(verb)) {
          const auto call = equal_blocks(verb, algorithm, ranks);
          const Index elements = verb == Verb::all_to_all ? given(call, 0) : total(call);
          const auto cost =
              collective_cost(verb, algorithm, ranks, static_cast<double>(elements * size_of(call.dtype)));
          EXPECT_DOUBLE_EQ(clocked(comm, call, 1, 0), cost.rounds) << describe(call);
          EXPECT_DOUBLE_EQ(clocked(comm, call, 0, 1), cost.bytes) << describe(call);
          EXPECT_DOUBLE_EQ(clocked(comm, call, 100, 1), cost.seconds(100, 1, 0)) << describe(call);
        }
    });
}

TEST(Collectives, AnAlgorithmOfAnotherVerbIsRefusedOnAllRanks) {
  run_threads(2, [](Communicator& comm) {
    double x = 1;
    const std::vector<Index> counts{1, 0};
    EXPECT_THROW(test::all_reduce(comm, &x, 1, DType::f64, ReduceOp::sum, CollectiveAlgorithm::bruck), Error);
    EXPECT_THROW(test::all_gather(comm, &x, &x, counts, DType::f64, CollectiveAlgorithm::pairwise), Error);
    EXPECT_THROW(test::reduce_scatter(comm, &x, &x, counts, DType::f64, CollectiveAlgorithm::binomial), Error);
    EXPECT_THROW(test::broadcast(comm, &x, 1, DType::f64, 0, CollectiveAlgorithm::ring), Error);
    EXPECT_THROW(test::all_to_all(comm, &x, &x, std::vector<Index>(4, 0), DType::f64, CollectiveAlgorithm::ring),
                 Error);
  });
}

}  // namespace partita::test::collectives_test
