#pragma once

#include "partita/comm/communicator.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

namespace partita::test {

// Checks that every transport must pass. Each check compares with values that a rank can compute by itself. The counts
// are uneven, and some are zero. All checks are collective: every rank of `comm` calls them.

inline double element(int rank, Index i) { return 100.0 * rank + static_cast<double>(i); }

inline std::vector<Index> uneven_counts(int ranks) {
  std::vector<Index> counts;
  for (int r = 0; r < ranks; ++r) counts.push_back(r * 5 % 4);  // 0 1 2 3 0 ...
  return counts;
}

inline std::vector<double> block(int rank, Index count, Index first = 0) {
  std::vector<double> values;
  for (Index i = 0; i < count; ++i) values.push_back(element(rank, first + i));
  return values;
}

template <class T>
std::span<const std::byte> bytes(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}
template <class T>
std::span<std::byte> writable(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

inline void check_all_reduce(Communicator& comm) {
  const int p = comm.size();
  for (const Index count : {0, 1, 3, 1000, 100003}) {  // the last one is moved in several pieces
    auto sum = block(comm.rank(), count);
    auto max = sum;
    auto pending = comm.all_reduce(sum.data(), count, DType::f64, ReduceOp::sum, {});
    comm.all_reduce(max.data(), count, DType::f64, ReduceOp::max, {}).wait();
    pending.wait();
    for (Index i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_EQ(sum[at], 100.0 * p * (p - 1) / 2 + static_cast<double>(p * i)) << "sum, element " << i;
      EXPECT_EQ(max[at], element(p - 1, i)) << "max, element " << i;
    }
  }
  for (int unknown = 0; unknown < p; ++unknown) {
    std::vector<double> of_64(3, comm.rank() == unknown ? std::numeric_limits<double>::quiet_NaN() : comm.rank());
    std::vector<float> of_32(of_64.begin(), of_64.end());
    comm.all_reduce(of_64.data(), 3, DType::f64, ReduceOp::max, {}).wait();
    comm.all_reduce(of_32.data(), 3, DType::f32, ReduceOp::max, {}).wait();
    EXPECT_TRUE(std::isnan(of_64[1]) && std::isnan(of_32[1])) << "NaN of rank " << unknown << " is not the maximum";
  }
  std::int32_t large = (1 << 24) + 1;  // not exact in float
  comm.all_reduce(&large, 1, DType::i32, ReduceOp::max, {}).wait();
  EXPECT_EQ(large, (1 << 24) + 1);
}

inline void check_short_floats(Communicator& comm) {
  // 1.0 and 2.0 as bf16 and f16. Sums of up to eight ones are exact.
  const std::uint16_t one[] = {0x3F80, 0x3C00}, two[] = {0x4000, 0x4000};
  const std::uint16_t sums[][9] = {{0, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0, 0x4100},
                                   {0, 0x3C00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700, 0x4800}};
  const int p = comm.size();
  for (const int f : {0, 1}) {
    const DType dtype = f == 0 ? DType::bf16 : DType::f16;
    for (const std::size_t count : {5, 5000}) {
      std::vector<std::uint16_t> values(count, one[f]);
      comm.all_reduce(values.data(), static_cast<Index>(count), dtype, ReduceOp::sum, {}).wait();
      if (p <= 8) {
        EXPECT_EQ(values, std::vector<std::uint16_t>(count, sums[f][p])) << name(dtype);
      }
    }
    std::vector<std::uint16_t> most(3, comm.rank() == p - 1 ? two[f] : one[f]);
    comm.all_reduce(most.data(), 3, dtype, ReduceOp::max, {}).wait();
    EXPECT_EQ(most, std::vector<std::uint16_t>(3, two[f])) << name(dtype);
    std::vector<std::uint16_t> mine(1), all(static_cast<std::size_t>(p), one[f]);
    comm.reduce_scatter(all.data(), mine.data(), std::vector<Index>(all.size(), 1), dtype, {}).wait();
    if (p <= 8) {
      EXPECT_EQ(mine[0], sums[f][p]) << name(dtype);
    }
  }
}

inline void check_all_gather(Communicator& comm) {
  const auto counts = uneven_counts(comm.size());
  std::vector<double> expected;
  for (int r = 0; r < comm.size(); ++r)
    for (const double x : block(r, counts[r])) expected.push_back(x);
  const auto mine = block(comm.rank(), counts[comm.rank()]);
  std::vector<double> all(expected.size());
  comm.all_gather(mine.data(), all.data(), counts, DType::f64, {}).wait();
  EXPECT_EQ(all, expected);
}

inline void check_reduce_scatter(Communicator& comm) {
  const int p = comm.size();
  const auto counts = uneven_counts(p);
  Index total = 0, first = 0;
  for (int r = 0; r < p; ++r) {
    if (r == comm.rank()) first = total;
    total += counts[r];
  }
  const auto all = block(comm.rank(), total);
  std::vector<double> mine(static_cast<std::size_t>(counts[comm.rank()]));
  comm.reduce_scatter(all.data(), mine.data(), counts, DType::f64, {}).wait();
  for (std::size_t i = 0; i < mine.size(); ++i)
    EXPECT_EQ(mine[i], 100.0 * p * (p - 1) / 2 + static_cast<double>(p * (first + static_cast<Index>(i))));
}

inline void check_broadcast(Communicator& comm) {
  for (int root = 0; root < comm.size(); ++root)
    for (const Index count : {0, 1, 7}) {
      auto data = block(comm.rank(), count);
      comm.broadcast(data.data(), count, DType::f64, root, {}).wait();
      EXPECT_EQ(data, block(root, count));
    }
}

inline void check_all_to_all(Communicator& comm) {
  const int p = comm.size();
  const auto count = [](int from, int to) { return static_cast<Index>((2 * from + 3 * to) % 4); };
  std::vector<Index> send_counts, recv_counts;
  std::vector<double> send, expected;
  for (int r = 0; r < p; ++r) {
    send_counts.push_back(count(comm.rank(), r));
    recv_counts.push_back(count(r, comm.rank()));
    for (const double x : block(comm.rank(), send_counts.back(), 10 * r)) send.push_back(x);
    for (const double x : block(r, recv_counts.back(), 10 * comm.rank())) expected.push_back(x);
  }
  std::vector<double> recv(expected.size());
  comm.all_to_all(send.data(), send_counts, recv.data(), recv_counts, DType::f64, {}).wait();
  EXPECT_EQ(recv, expected);
}

/// Sends two messages to every other rank, which must arrive in order. Some messages are empty.
inline void check_exchange(Communicator& comm) {
  const int p = comm.size();
  std::vector<std::vector<double>> out, in, expected;
  std::vector<int> peers;
  for (int r = 0; r < p; ++r)
    for (int message = 0; r != comm.rank() && message < 2; ++message) {
      peers.push_back(r);
      out.push_back(block(comm.rank(), (comm.rank() + r + message) % 3, 10 * message));
      expected.push_back(block(r, (comm.rank() + r + message) % 3, 10 * message));
      in.emplace_back(expected.back().size());
    }
  std::vector<Send> sends;
  std::vector<Recv> recvs;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    sends.push_back({peers[i], bytes(out[i])});
    recvs.push_back({peers[i], writable(in[i])});
  }
  comm.exchange(sends, recvs, {}).wait();
  EXPECT_EQ(in, expected);
}

/// Starts two ring shifts, runs a collective, and waits for the second shift first.
inline void check_requests_in_any_order(Communicator& comm) {
  const int p = comm.size(), right = (comm.rank() + 1) % p, left = (comm.rank() + p - 1) % p;
  if (p == 1) return;
  const auto a = block(comm.rank(), 4), b = block(comm.rank(), 4, 50);
  std::vector<double> first(4), second(4);
  const Send sends[] = {{right, bytes(a)}, {right, bytes(b)}};
  const Recv recvs[] = {{left, writable(first)}, {left, writable(second)}};
  {
    auto one = comm.exchange({sends, 1}, {recvs, 1}, {});
    auto two = comm.exchange({sends + 1, 1}, {recvs + 1, 1}, {});
    check_all_reduce(comm);
    two.wait();
    EXPECT_EQ(second, block(left, 4, 50));
  }  // nobody waited for `one`: its destructor waits
  EXPECT_EQ(first, block(left, 4));
}

/// Returns the box that `from` sends to `to`: row `from` of the first dimension of a tensor of `shape`, and a part of
/// each other dimension. Some boxes are empty, some are large.
inline Box box_of_pair(const Shape& shape, int from, int to) {
  Box box(shape);
  box[0] = {from, from + 1};
  for (int d = 1; d < box.dims(); ++d) box[d] = {(from + to) % 2, shape.extent(d) - to % 2};
  if ((from + 2 * to) % 5 == 4) box[box.dims() - 1].hi = box[box.dims() - 1].lo;
  return box;
}

/// Exchanges boxes with 2 to 5 dimensions, from one element to more than any transport sends at once. They are written
/// and added, in two exchanges at a time.
inline void check_exchange_boxes(Communicator& comm) {
  const int p = comm.size();
  const auto allocator = std::make_shared<Allocator>();
  for (const Shape& shape : {Shape{{'N', p}, {'C', 2}}, Shape{{'N', p}, {'C', 3}, {'D', 5}, {'H', 170}, {'W', 131}},
                             Shape{{'N', p}, {'C', 20011}, {'H', 3}}, Shape{{'N', p}, {'L', 50021}}}) {
    SCOPED_TRACE(shape.print());
    std::vector<Transfer> sends, recvs;
    for (int r = 0; r < p; ++r) {
      if (r == comm.rank()) continue;
      sends.push_back({r, box_of_pair(shape, comm.rank(), r)});
      recvs.push_back({r, box_of_pair(shape, r, comm.rank())});
    }
    const auto tensor = [&] {
      return Tensor(DType::f64, shape.names(), Box(shape), allocator, MemoryClass::workspace);
    };
    const Tensor from = tensor(), written = tensor(), added = tensor();
    for (Index i = 0; i < from.volume(); ++i) {
      from.set(i, static_cast<double>(i + 1));
      added.set(i, 0.5);
    }
    if (comm.rank() % 2 == 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that the other ranks run ahead
    {
      auto one = comm.exchange_boxes({from, sends, written, recvs, false}, {});
      comm.exchange_boxes({from, sends, added, recvs, true}, {}).wait();
    }  // the destructor of `one` waits
    const Tensor expected = tensor();
    for (const auto& [peer, box] : recvs) copy_box(from, expected, box, {});
    for (Index i = 0; i < from.volume(); ++i) {
      ASSERT_EQ(written.get(i), expected.get(i)) << "element " << i;
      ASSERT_EQ(added.get(i), expected.get(i) + 0.5) << "element " << i;
    }
  }
}

/// Checks that overlapping boxes are added in the order in which they are listed. The order must depend neither on
/// which message arrives first nor on waiting for a later exchange first. The numbers differ so much in size that sums
/// in different orders differ.
inline void check_sums_in_order(Communicator& comm) {
  const int p = comm.size(), me = comm.rank();
  const Shape shape{{'N', 3}, {'L', 70001}};  // more than a transport sends at once
  const Box all(shape);
  const auto part = [](int rank) { return std::array{1.0, 1e16, -1e16, 3.0}[rank % 4]; };
  const Tensor from(DType::f64, shape.names(), all), sum = from.like(all), copy = from.like(all);
  for (Index i = 0; i < from.volume(); ++i) from.set(i, part(me));
  std::vector<Transfer> sends, recvs;
  for (int r = 0; r < p; ++r)
    if (r != me) {
      sends.push_back({r, all});
      recvs.push_back({r, all});
    }
  const int next = (me + 1) % p, last = (me + p - 1) % p;
  const std::vector<Transfer> to_next{{next, all}}, from_last{{last, all}};
  if (me % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  auto adding = comm.exchange_boxes({from, sends, sum, recvs, true}, {});
  if (p > 1) comm.exchange_boxes({from, to_next, copy, from_last, false}, {}).wait();
  adding.wait();
  double expected = 0;
  for (const auto& recv : recvs) expected += part(recv.peer);
  for (Index i = 0; i < sum.volume(); ++i) {
    ASSERT_EQ(sum.get(i), expected) << "element " << i;
    if (p > 1) {
      ASSERT_EQ(copy.get(i), part(last));
    }
  }
}

inline void check_split(Communicator& comm) {
  // Splits odd and even ranks, each in descending order.
  const auto half = comm.split(comm.rank() % 2, -comm.rank());
  const int members = (comm.size() + 1 - comm.rank() % 2) / 2;
  EXPECT_EQ(half->size(), members);
  EXPECT_EQ(half->rank(), members - 1 - comm.rank() / 2);
  const auto alone = half->split(half->rank(), 0);
  EXPECT_EQ(alone->size(), 1);
  std::vector<std::int32_t> order(static_cast<std::size_t>(members));
  const std::int32_t mine = comm.rank();
  half->all_gather(&mine, order.data(), std::vector<Index>(order.size(), 1), DType::i32, {}).wait();
  for (int i = 0; i < members; ++i) EXPECT_EQ(order[i], comm.rank() % 2 + 2 * (members - 1 - i));
  for (auto* part : {half.get(), alone.get()}) {
    check_exchange(*part);
    check_all_reduce(*part);
    check_all_gather(*part);
  }
}

inline void check_agreement(Communicator& comm) {
  EXPECT_EQ(agree(comm, ""), "");
  const int p = comm.size();
  const auto message = [](int rank) {
    return "rank " + std::to_string(rank) + std::string(static_cast<std::size_t>(rank), '!');
  };
  for (int first = 0; first < p; ++first)
    EXPECT_EQ(agree(comm, comm.rank() >= first ? message(comm.rank()) : ""), message(first));
}

inline void check_transport(Communicator& comm) {
  check_exchange(comm);
  check_exchange_boxes(comm);
  check_sums_in_order(comm);
  check_requests_in_any_order(comm);
  check_all_reduce(comm);
  check_short_floats(comm);
  check_all_gather(comm);
  check_reduce_scatter(comm);
  check_broadcast(comm);
  check_all_to_all(comm);
  check_split(comm);
  check_agreement(comm);
}

}  // namespace partita::test
