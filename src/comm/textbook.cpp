#include "src/comm/textbook.hpp"

namespace partita::textbook {

void swap(Communicator& comm, int to, std::span<const std::byte> out, int from, std::span<std::byte> in) {
  const Send send{to, out};
  const Recv recv{from, in};
  comm.exchange({&send, out.empty() ? 0U : 1U}, {&recv, in.empty() ? 0U : 1U}, {}).wait();
}

void gather_ring(Communicator& comm, const Blocks<std::byte>& all, int own) {
  const int rank = comm.rank(), size = comm.size();
  for (int round = 0; round < size - 1; ++round)
    swap(comm, (rank + 1) % size, all[(own - round + size) % size], (rank - 1 + size) % size,
         all[(own - round - 1 + size) % size]);
}

void all_reduce(Communicator& comm, void* data, Index count, DType dtype, ReduceOp op) {
  const auto mine = buffer_of(data, count, dtype);
  std::vector<std::byte> other(mine.size());
  const auto swap_with = [&](int peer, std::span<const std::byte> out, std::span<std::byte> in) {
    swap(comm, peer, out, peer, in);
  };
  reduce_by_doubling(comm.rank(), comm.size(), mine, other, swap_with, Combining{dtype, op});
}

void all_gather(Communicator& comm, const void* local, void* all, std::span<const Index> counts, DType dtype) {
  const auto result = blocks_of(all, counts, dtype);
  const auto mine = result[comm.rank()];
  copy_bytes({static_cast<const std::byte*>(local), mine.size()}, mine);
  gather_ring(comm, result, comm.rank());
}

void reduce_scatter(Communicator& comm, const void* all, void* local, std::span<const Index> counts, DType dtype) {
  const int rank = comm.rank(), size = comm.size();
  const auto mine = buffer_of(local, counts[rank], dtype);
  const auto parts = blocks_of(all, counts, dtype);
  const std::vector<Index> same(static_cast<std::size_t>(size), counts[rank]);
  std::vector<std::byte> buffer(static_cast<std::size_t>(size) * mine.size());
  const auto arrived = blocks_of(buffer.data(), same, dtype);
  copy_bytes(parts[rank], arrived[rank]);
  for (int round = 1; round < size; ++round) {
    const int to = (rank + round) % size, from = (rank - round + size) % size;
    swap(comm, to, parts[to], from, arrived[from]);
  }
  for (int r = 1; r < size; ++r) Combining{dtype, ReduceOp::sum}(arrived[0], arrived[r]);
  copy_bytes(arrived[0], mine);
}

void broadcast(Communicator& comm, void* data, Index count, DType dtype, int root) {
  const int size = comm.size(), rank = (comm.rank() - root + size) % size;  // counts from the root
  const auto mine = buffer_of(data, count, dtype);
  // In each round, the ranks below `bit` have the data and send it to the ranks `bit` above them.
  for (int bit = 1; bit < size; bit *= 2) {
    const int above = (rank + bit + root) % size, below = (rank - bit + root + size) % size;
    if (rank < bit && rank + bit < size) swap(comm, above, mine, above, {});
    if (rank >= bit && rank < 2 * bit) swap(comm, below, {}, below, mine);
  }
}

void all_to_all(Communicator& comm, const void* send, std::span<const Index> send_counts, void* recv,
                std::span<const Index> recv_counts, DType dtype) {
  const int rank = comm.rank(), size = comm.size();
  const auto out = blocks_of(send, send_counts, dtype);
  const auto in = blocks_of(recv, recv_counts, dtype);
  copy_bytes(out[rank], in[rank]);
  for (int round = 1; round < size; ++round) {
    const int to = (rank + round) % size, from = (rank - round + size) % size;
    swap(comm, to, out[to], from, in[from]);
  }
}

}  // namespace partita::textbook
