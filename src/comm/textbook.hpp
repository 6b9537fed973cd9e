#pragma once

#include "src/comm/blocks.hpp"

#include <bit>

/// Blocking textbook collectives that are built from `exchange`, for any number of ranks. Thread ranks use them. The
/// parameters are those of Communicator. Below, p is the number of ranks and n the bytes of the full vector. Empty
/// blocks send no message. Replicas agree bit for bit: each element of a sum is either formed by one rank and then
/// copied, or formed by all ranks from the same pairs.
namespace partita::textbook {

/// Recursive doubling: floor(log2 p) rounds of n bytes. If p is not a power of two, the ranks beyond the largest power
/// of two add to the others first and get the sum last, which takes two more rounds.
void all_reduce(Communicator& comm, void* data, Index count, DType dtype, ReduceOp op);
/// A ring: p-1 rounds. Each rank moves (p-1)/p n bytes.
void all_gather(Communicator& comm, const void* local, void* all, std::span<const Index> counts, DType dtype);
/// Pairwise exchange in p-1 rounds; it sums in rank order. Each rank moves (p-1)/p n bytes.
void reduce_scatter(Communicator& comm, const void* all, void* local, std::span<const Index> counts, DType dtype);
/// A binomial tree: ceil(log2 p) rounds of n bytes.
void broadcast(Communicator& comm, void* data, Index count, DType dtype, int root);
/// Pairwise exchange in p-1 rounds.
void all_to_all(Communicator& comm, const void* send, std::span<const Index> send_counts, void* recv,
                std::span<const Index> recv_counts, DType dtype);

/// The recursive doubling of all_reduce on this rank. `swap(peer, out, in)` sends and receives at the same time, where
/// an empty buffer makes no message; `combine(to, from)` adds; `other` has the size of `mine`.
template <class Swap, class Combine>
void reduce_by_doubling(int rank, int size, std::span<std::byte> mine, std::span<std::byte> other, const Swap& swap,
                        const Combine& combine) {
  const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  if (rank >= core) {
    swap(rank - core, mine, std::span<std::byte>());
    return swap(rank - core, std::span<std::byte>(), mine);
  }
  const bool doubled = rank + core < size;
  if (doubled) {
    swap(rank + core, std::span<std::byte>(), other);
    combine(mine, other);
  }
  for (int bit = 1; bit < core; bit *= 2) {
    swap(rank ^ bit, mine, other);
    combine(mine, other);
  }
  if (doubled) swap(rank + core, mine, std::span<std::byte>());
}

/// Sends one message to `to` and receives one from `from` at the same time, and waits. An empty buffer makes no
/// message.
void swap(Communicator& comm, int to, std::span<const std::byte> out, int from, std::span<std::byte> in);
/// Sends all blocks around the ring, so that every rank gets all of them. At the start this rank has block `own`, and
/// its left neighbor has block `own` - 1.
void gather_ring(Communicator& comm, const Blocks<std::byte>& all, int own);

}  // namespace partita::textbook
