#include "partita/comm/textbook.hpp"

#include "partita/base/dispatch.hpp"

#include <bit>
#include <cstring>

namespace partita::textbook {

namespace {

/// One message to `to` beside one from `from`; empty ones are none.
void swap(Communicator& comm, int to, std::span<const std::byte> out, int from, std::span<std::byte> in) {
  const Send send{to, out};
  const Recv recv{from, in};
  comm.exchange({&send, out.empty() ? 0U : 1U}, {&recv, in.empty() ? 0U : 1U}, {}).wait();
}

/// A buffer cut into blocks of `counts` elements, one after the other.
template <class Byte>
class Blocks {
 public:
  Blocks(Byte* data, std::span<const Index> counts, DType dtype) : data_(data), bounds_(counts.size() + 1) {
    for (std::size_t i = 0; i < counts.size(); ++i) bounds_[i + 1] = bounds_[i] + counts[i] * size_of(dtype);
  }
  std::span<Byte> operator[](int block) const {
    const auto b = static_cast<std::size_t>(block);
    return {data_ + bounds_[b], static_cast<std::size_t>(bounds_[b + 1] - bounds_[b])};
  }

 private:
  Byte* data_;
  std::vector<Index> bounds_;
};

Blocks<const std::byte> blocks(const void* data, std::span<const Index> counts, DType dtype) {
  return {static_cast<const std::byte*>(data), counts, dtype};
}
Blocks<std::byte> blocks(void* data, std::span<const Index> counts, DType dtype) {
  return {static_cast<std::byte*>(data), counts, dtype};
}

void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  require(from.size() == to.size(), "a block keeps its size");
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace

void combine(void* to, const void* from, Index count, DType dtype, Op op) {
  dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    using A = std::conditional_t<std::is_integral_v<T>, T, Accumulator<T>>;
    auto* a = static_cast<T*>(to);
    const auto* b = static_cast<const T*>(from);
    if (op == Op::sum)
      for (Index i = 0; i < count; ++i) a[i] = static_cast<T>(static_cast<A>(a[i]) + static_cast<A>(b[i]));
    else  // what is not a number wins, whichever side it is on, so that all ranks agree
      for (Index i = 0; i < count; ++i) a[i] = b[i] > a[i] || b[i] != b[i] ? b[i] : a[i];
  });
}

void all_reduce(Communicator& comm, void* data, Index count, DType dtype, Op op) {
  const int rank = comm.rank(), size = comm.size();
  const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  const std::span<std::byte> mine(static_cast<std::byte*>(data), static_cast<std::size_t>(count * size_of(dtype)));
  if (rank >= core) {
    swap(comm, rank - core, mine, rank - core, {});
    swap(comm, rank - core, {}, rank - core, mine);
    return;
  }
  std::vector<std::byte> other(mine.size());
  const bool folded = rank + core < size;
  if (folded) {
    swap(comm, rank + core, {}, rank + core, other);
    combine(data, other.data(), count, dtype, op);
  }
  for (int bit = 1; bit < core; bit *= 2) {
    swap(comm, rank ^ bit, mine, rank ^ bit, other);
    combine(data, other.data(), count, dtype, op);
  }
  if (folded) swap(comm, rank + core, mine, rank + core, {});
}

void all_gather(Communicator& comm, const void* local, void* all, std::span<const Index> counts, DType dtype) {
  const int rank = comm.rank(), size = comm.size();
  const auto result = blocks(all, counts, dtype);
  const auto mine = result[rank];
  copy({static_cast<const std::byte*>(local), mine.size()}, mine);
  for (int round = 0; round < size - 1; ++round)
    swap(comm, (rank + 1) % size, result[(rank - round + size) % size], (rank - 1 + size) % size,
         result[(rank - round - 1 + size) % size]);
}

void reduce_scatter(Communicator& comm, const void* all, void* local, std::span<const Index> counts, DType dtype) {
  const int rank = comm.rank(), size = comm.size();
  const auto parts = blocks(all, counts, dtype);
  const Index count = counts[static_cast<std::size_t>(rank)];
  const std::vector<Index> same(static_cast<std::size_t>(size), count);
  std::vector<std::byte> buffer(static_cast<std::size_t>(size * count * size_of(dtype)));
  const auto arrived = blocks(buffer.data(), same, dtype);
  copy(parts[rank], arrived[rank]);
  for (int round = 1; round < size; ++round) {
    const int to = (rank + round) % size, from = (rank - round + size) % size;
    swap(comm, to, parts[to], from, arrived[from]);
  }
  for (int r = 1; r < size; ++r) combine(buffer.data(), arrived[r].data(), count, dtype, Op::sum);
  copy(arrived[0], {static_cast<std::byte*>(local), arrived[0].size()});
}

void broadcast(Communicator& comm, void* data, Index count, DType dtype, int root) {
  const int size = comm.size();
  const int rank = (comm.rank() - root + size) % size;  // counted from the root
  const auto peer = [&](int r) { return (r + root) % size; };
  const std::span<std::byte> buffer(static_cast<std::byte*>(data), static_cast<std::size_t>(count * size_of(dtype)));
  // In the round of `bit` the ranks below it, which have the data, send to those `bit` above them.
  for (int bit = 1; bit < size; bit *= 2) {
    if (rank < bit && rank + bit < size) swap(comm, peer(rank + bit), buffer, peer(rank + bit), {});
    if (rank >= bit && rank < 2 * bit) swap(comm, peer(rank - bit), {}, peer(rank - bit), buffer);
  }
}

void all_to_all(Communicator& comm, const void* send, std::span<const Index> send_counts, void* recv,
                std::span<const Index> recv_counts, DType dtype) {
  const int rank = comm.rank(), size = comm.size();
  const auto out = blocks(send, send_counts, dtype);
  const auto in = blocks(recv, recv_counts, dtype);
  copy(out[rank], in[rank]);
  for (int round = 1; round < size; ++round) {
    const int to = (rank + round) % size, from = (rank - round + size) % size;
    swap(comm, to, out[to], from, in[from]);
  }
}

}  // namespace partita::textbook
