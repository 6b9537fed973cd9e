// Tests the steps of ranks in shared memory. Here all ranks belong to one process and take turns.
#include "src/comm/shared_memory/shared_collective.hpp"
#include "src/comm/shared_memory/shared_exchange.hpp"
#include "src/comm/shared_memory/streaming.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace partita::shared_test {

namespace {

using Choice = StreamingChoice<8>;

/// Simulates pieces that take `cached` or `streaming` seconds per byte, depending on how they are stored. Returns how
/// many pieces of `periods` periods were streamed.
Index streamed(Choice& choice, const std::atomic<bool>& shared, Index first_period, Index periods, double cached,
               double streaming) {
  Index count = 0;
  for (Index piece = first_period * Choice::period; piece < (first_period + periods) * Choice::period; ++piece) {
    const bool streams = Choice::streams(shared, piece);
    const Index bytes = 1000 + piece % 3 * 1000;  // the choice must depend on the time per byte only
    count += streams ? 1 : 0;
    if (!Choice::needs(piece)) continue;
    choice.add(piece, (streams ? streaming : cached) * static_cast<double>(bytes));
    choice.finish(piece, bytes);
  }
  return count;
}

TEST(Streaming, FollowsTheFasterWayAndTriesTheOtherOnceAPeriod) {
  if (!has_streaming_stores) GTEST_SKIP() << "this processor has no streaming stores";
  std::atomic<bool> shared{false};
  Choice choice(shared);
  constexpr Index last = 8 + 5;  // position of the second trial in a period
  EXPECT_EQ(streamed(choice, shared, 0, 4, 1, 1.5), 4 * 2);
  EXPECT_FALSE(shared);
  EXPECT_EQ(streamed(choice, shared, 4, 1, 9, 1.5), Choice::period - last + 1);
  EXPECT_TRUE(shared);
  EXPECT_EQ(streamed(choice, shared, 5, 3, 9, 1.5), 3 * (Choice::period - 2));
  EXPECT_EQ(streamed(choice, shared, 8, 1, 1, 1.5), last - 1);
  EXPECT_FALSE(shared);
}

TEST(Streaming, DoesNotChangeForWhatHeldOthersUp) {
  if (!has_streaming_stores) GTEST_SKIP() << "this processor has no streaming stores";
  std::atomic<bool> shared{false};
  Choice choice(shared);
  for (Index piece = 0, seen = 0; piece < Choice::period; ++piece) {
    if (!Choice::needs(piece)) continue;
    choice.add(piece, ++seen == 2 ? 1 : seen < Choice::timed ? 50 : 1.1);
    choice.finish(piece, 1000);
  }
  EXPECT_FALSE(shared);
}

TEST(Streaming, CopiesAnyBytesToAnyPlace) {
  for (Index bytes = 0; bytes < 70; ++bytes)
    for (std::size_t to = 0; to < 17; ++to)
      for (const std::size_t from : {std::size_t{0}, std::size_t{3}}) {
        std::vector<std::byte> source(100), target(100, std::byte{0xee});
        for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i);
        auto expected = target;
        std::copy_n(source.begin() + static_cast<long>(from), bytes, expected.begin() + static_cast<long>(to));
        stream_copy(target.data() + to, source.data() + from, bytes);
        ASSERT_EQ(target, expected) << bytes << " bytes to " << to << " from " << from;
      }
}

using Kind = SharedCollective::Kind;

/// Thirds, so that sums are rounded and show their order.
float given(int rank, Index i) { return static_cast<float>((rank + 1) * (i % 61) - 40) / 3; }

/// Runs a collective and returns the result of each rank. A rank streams a piece if `streams(rank, piece)` is true.
template <class Streams>
std::vector<std::vector<float>> run(Kind kind, const std::vector<Index>& counts, ReduceOp op, Streams&& streams) {
  const auto ranks = static_cast<int>(counts.size());
  const Index total = std::accumulate(counts.begin(), counts.end(), Index{0});
  std::vector<std::vector<float>> in, out;
  std::vector<std::vector<std::byte>> slots(counts.size(), std::vector<std::byte>(SharedCollective::slot_bytes));
  std::vector<SharedCollective> all;
  for (int r = 0; r < ranks; ++r) {
    const Index own = counts[r];
    in.emplace_back(static_cast<std::size_t>(kind == Kind::all_gather   ? own
                                             : kind == Kind::all_reduce ? counts[0]
                                                                        : total));
    out.emplace_back(static_cast<std::size_t>(kind == Kind::all_gather ? total : own));
    for (std::size_t i = 0; i < in.back().size(); ++i) in.back()[i] = given(r, static_cast<Index>(i));
    if (kind == Kind::all_reduce) out.back() = in.back();
  }
  for (int r = 0; r < ranks; ++r) {
    auto& result = out[r];
    const void* from = kind == Kind::all_reduce ? result.data() : in[r].data();
    all.emplace_back(kind, from, result.data(), counts, r, DType::f32, op);
  }
  const auto slot_of = [&](int r) { return slots[r].data(); };
  for (Index piece = 0; piece < all[0].pieces(); ++piece) {
    for (int r = 0; r < ranks; ++r) all[r].stage(piece, slot_of(r), streams(r, piece));
    for (int r = 0; r < ranks; ++r) all[r].reduce(piece, slot_of, streams(r, piece));
    for (int r = 0; r < ranks; ++r) all[r].gather(piece, slot_of);
  }
  return out;
}

/// The expected result of a rank, computed from the definition of the collective. Sums are in the order of the ranks.
std::vector<float> expected(Kind kind, const std::vector<Index>& counts, ReduceOp op, int rank) {
  const auto ranks = static_cast<int>(counts.size());
  std::vector<float> all;
  if (kind == Kind::all_gather) {
    for (int r = 0; r < ranks; ++r)
      for (Index i = 0; i < counts[r]; ++i) all.push_back(given(r, i));
    return all;
  }
  const auto begin = kind == Kind::all_reduce ? 0 : std::accumulate(counts.begin(), counts.begin() + rank, Index{0});
  for (Index i = begin; i < begin + counts[rank]; ++i) {
    float value = given(0, i);
    for (int r = 1; r < ranks; ++r) value = op == ReduceOp::sum ? value + given(r, i) : std::max(value, given(r, i));
    all.push_back(value);
  }
  return all;
}

TEST(SharedCollective, SumsInRankOrderHoweverPiecesAreStored) {
  for (const auto& counts : {std::vector<Index>{70'001, 70'001},
                             {5'003, 5'003, 5'003},
                             {40'000, 0, 33'333},
                             {0, 50'021},
                             {9'001, 9'001, 9'001, 9'001, 9'001, 9'001, 9'001},
                             {3, 7'001, 0, 1, 12'000}})
    for (const Kind kind : {Kind::all_reduce, Kind::all_gather, Kind::reduce_scatter})
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
        if (kind == Kind::all_reduce && counts.front() != counts.back()) continue;
        for (int way = 0; way < 3; ++way) {  // streams: no piece, all pieces, some pieces
          const auto streams = [&](int rank, Index piece) { return way == 1 || (way == 2 && (rank + piece) % 2 == 0); };
          const auto results = run(kind, counts, op, streams);
          for (std::size_t r = 0; r < counts.size(); ++r)
            EXPECT_EQ(results[r], expected(kind, counts, op, static_cast<int>(r)))
                << "kind " << static_cast<int>(kind) << ", rank " << r << " of " << counts.size() << ", way " << way;
        }
      }
}

/// Two ranks exchange contiguous and scattered boxes, so often that each ring has tried both ways to store.
TEST(SharedExchange, BoxesArriveHoweverTheyAreStored) {
  struct alignas(64) Cache {
    std::byte bytes[64];
  };
  std::vector<std::vector<Cache>> memory(
      2, std::vector<Cache>(static_cast<std::size_t>(SharedExchange::bytes(2) / 64 + 1)));
  const std::vector<std::byte*> segments{memory[0][0].bytes, memory[1][0].bytes};
  std::vector<SharedExchange> ranks;
  for (int r = 0; r < 2; ++r) ranks.emplace_back(r, segments);
  const Box whole(Shape{{'N', 3}, {'C', 40}, {'H', 30}, {'W', 20}});
  const auto allocator = std::make_shared<Allocator>();
  const auto tensor = [&] { return Tensor(DType::f32, "NCHW", whole, allocator, MemoryClass::activations); };
  Box rows = whole, columns = whole;
  rows[0] = {1, 3}, columns[3] = {7, 12};
  for (int repeat = 0; repeat < 600; ++repeat)
    for (const Box& part : {rows, columns}) {
      std::vector<Tensor> from{tensor(), tensor()}, to{tensor(), tensor()};
      std::vector<std::shared_ptr<const SharedOperation>> under_way;
      for (int r = 0; r < 2; ++r) {
        const auto i = static_cast<std::size_t>(r);
        for (Index k = 0; k < from[i].volume(); ++k) from[i].set(k, static_cast<double>(k + r * repeat));
        const std::vector<Transfer> across{{1 - r, part}};
        under_way.push_back(ranks[i].start({from[i], across, to[i], across}));
      }
      while (!under_way[0]->done() || !under_way[1]->done())
        for (auto& rank : ranks) rank.advance();
      for (std::size_t i = 0; i < 2; ++i) {
        const Tensor wanted = tensor();
        copy_box(from[1 - i], wanted, part, {});
        ASSERT_TRUE(std::equal(to[i].data(), to[i].data() + to[i].bytes(), wanted.data()))
            << "rank " << i << ", repeat " << repeat;
      }
    }
}

}  // namespace

}  // namespace partita::shared_test
