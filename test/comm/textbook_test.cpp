#include "src/comm/textbook.hpp"
#include "partita/comm/counting.hpp"
#include "src/comm/threads/threads.hpp"
#include "test/support/collectives.hpp"

#include <cmath>
#include <limits>

namespace partita::test::textbook_test {

namespace {

constexpr Index elements = 840;  // divides evenly among 1 to 8 ranks

/// Returns the traffic that one rank sends when `verb` runs.
Traffic sent_by(Communicator& comm, const std::function<void(Communicator&)>& verb) {
  const auto counter = std::make_shared<TrafficCounter>();
  verb(*counting(comm, counter));
  return counter->total();
}

int floor_log2(int p) { return p == 1 ? 0 : 1 + floor_log2(p / 2); }

}  // namespace

TEST(Textbook, MessagesAreThoseOfTheClosedForms) {
  for (int p = 1; p <= 8; ++p)
    run_threads(p, [p](Communicator& comm) {
      const std::vector<Index> counts(static_cast<std::size_t>(p), elements / p);
      std::vector<double> a(elements), b(elements);
      const Index n = elements * 8;
      const Traffic pairwise{p - 1, n / p * (p - 1)};
      EXPECT_EQ(sent_by(comm, [&](auto& c) { textbook::all_gather(c, a.data(), b.data(), counts, DType::f64); }),
                pairwise);
      EXPECT_EQ(sent_by(comm, [&](auto& c) { textbook::reduce_scatter(c, a.data(), b.data(), counts, DType::f64); }),
                pairwise);
      EXPECT_EQ(
          sent_by(comm, [&](auto& c) { textbook::all_to_all(c, a.data(), counts, b.data(), counts, DType::f64); }),
          pairwise);

      const int core = 1 << floor_log2(p);
      const Index rounds = comm.rank() >= core ? 1 : floor_log2(p) + (comm.rank() + core < p ? 1 : 0);
      EXPECT_EQ(sent_by(comm, [&](auto& c) { textbook::all_reduce(c, a.data(), elements, DType::f64, ReduceOp::sum); }),
                (Traffic{rounds, rounds * n}));

      // A tree has p-1 edges. The root sends most often: once in each round.
      std::int32_t edges = static_cast<std::int32_t>(
          sent_by(comm, [&](auto& c) { textbook::broadcast(c, a.data(), elements, DType::f64, p - 1); }).messages);
      if (comm.rank() == p - 1) {
        EXPECT_EQ(edges, floor_log2(2 * p - 1));
      }
      comm.all_reduce(&edges, 1, DType::i32, ReduceOp::sum, {}).wait();
      EXPECT_EQ(edges, p - 1);
    });
}

TEST(Textbook, ReduceScatterSumsInRankOrder) {
  // (1e16 + 1) - 1e16 is 0. If 1e16 and -1e16 are added first, the sum is 1.
  run_threads(3, [](Communicator& comm) {
    const double terms[] = {1e16, 1, -1e16};
    const std::vector<double> all(3, terms[comm.rank()]);
    double sum = -1;
    textbook::reduce_scatter(comm, all.data(), &sum, std::vector<Index>(3, 1), DType::f64);
    EXPECT_EQ(sum, 1e16 + 1 - 1e16);
  });
}

TEST(Blocks, CombineKeepsWhatIsNotANumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  double to[] = {nan, 1, 2, 3};
  const double from[] = {1, nan, 1, 4};
  combine(to, from, 4, DType::f64, ReduceOp::max);
  EXPECT_TRUE(std::isnan(to[0]));
  EXPECT_TRUE(std::isnan(to[1]));
  EXPECT_EQ(to[2], 2);
  EXPECT_EQ(to[3], 4);
}

TEST(Blocks, CombineRoundsToTheDtype) {
  std::uint16_t to = 0x4380;          // 256 in bf16, which has 8 bits of precision: its neighbors are 2 apart
  const std::uint16_t from = 0x3F80;  // 1
  combine(&to, &from, 1, DType::bf16, ReduceOp::sum);
  EXPECT_EQ(to, 0x4380);
  std::int32_t many = (1 << 24) + 1;  // not exact in float, so the sum must be an integer sum
  const std::int32_t one = 1;
  combine(&many, &one, 1, DType::i32, ReduceOp::sum);
  EXPECT_EQ(many, (1 << 24) + 2);
}

}  // namespace partita::test::textbook_test
