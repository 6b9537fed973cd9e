#include "src/comm/textbook/textbook_move.hpp"

#include "src/comm/textbook/textbook.hpp"

#include <algorithm>

namespace partita::textbook {

void gather_ring(Communicator& comm, const Blocks<std::byte>& all, int own) {
  const int rank = comm.rank(), size = comm.size();
  for (int round = 0; round < size - 1; ++round)
    swap(comm, (rank + 1) % size, all[(own - round + size) % size], (rank - 1 + size) % size,
         all[(own - round - 1 + size) % size]);
}

void gather_doubling(Communicator& comm, const Fold& fold, const Blocks<std::byte>& all) {
  const int place = fold.place(comm.rank());
  // Before the round, the `distance` places from one multiple of `distance` to the next have all blocks of each other.
  for (int distance = 1; distance < fold.core; distance *= 2) {
    const int peer = place ^ distance, mine = place & ~(distance - 1), theirs = peer & ~(distance - 1);
    swap(comm, fold.first(peer), all.range(mine, mine + distance), fold.first(peer),
         all.range(theirs, theirs + distance));
  }
}

namespace {

void all_gather_doubling(Communicator& comm, void* all, std::span<const Index> counts, DType dtype) {
  const int rank = comm.rank();
  const Fold fold(comm.size());
  const auto result = blocks(all, counts, dtype);
  if (fold.idle(rank)) {
    send_to(comm, rank - 1, result[rank]);
    receive_from(comm, rank - 1, result.all());
    return;
  }
  if (fold.doubled(rank)) receive_from(comm, rank + 1, result[rank + 1]);
  gather_doubling(comm, fold, blocks(all, folded(fold, counts), dtype));
  if (fold.doubled(rank)) send_to(comm, rank + 1, result.all());
}

/// Each rank stores the blocks in the order rank, rank+1, ..., so that the blocks it has are always the first ones.
void all_gather_bruck(Communicator& comm, void* all, std::span<const Index> counts, DType dtype) {
  const int rank = comm.rank(), size = comm.size();
  const auto result = blocks(all, counts, dtype);
  std::vector<Index> turned(counts.begin(), counts.end());
  std::rotate(turned.begin(), turned.begin() + rank, turned.end());
  std::vector<std::byte> buffer(result.all().size());
  const auto mine = blocks(buffer.data(), turned, dtype);
  copy(result[rank], mine[0]);
  for (int have = 1; have < size; have *= 2) {
    const int more = std::min(have, size - have);
    swap(comm, (rank - have + size) % size, mine.range(0, more), (rank + have) % size, mine.range(have, have + more));
  }
  for (int i = 1; i < size; ++i) copy(mine[i], result[(rank + i) % size]);
}

/// `rank` counts from the root. `peer` converts such a number to a rank of `comm`.
template <class Peer>
void broadcast_binomial(Communicator& comm, std::span<std::byte> data, int rank, const Peer& peer) {
  // In each round, the ranks below `bit` have the data and send it to the ranks `bit` above them.
  for (int bit = 1; bit < comm.size(); bit *= 2) {
    if (rank < bit && rank + bit < comm.size()) send_to(comm, peer(rank + bit), data);
    if (rank >= bit && rank < 2 * bit) receive_from(comm, peer(rank - bit), data);
  }
}

/// Scatters the blocks from the root, down a binomial tree. In each round, a rank that has the blocks of 2 * `bit`
/// ranks sends the upper half of them away. `rank` and `peer` are as in broadcast_binomial.
template <class Peer>
void scatter(Communicator& comm, const Blocks<std::byte>& data, int rank, const Peer& peer) {
  const int size = comm.size();
  for (int bit = static_cast<int>(std::bit_ceil(static_cast<unsigned>(size))) / 2; bit > 0; bit /= 2) {
    if (rank % (2 * bit) == 0 && rank + bit < size)
      send_to(comm, peer(rank + bit), data.range(rank + bit, std::min(rank + 2 * bit, size)));
    if (rank % (2 * bit) == bit) receive_from(comm, peer(rank - bit), data.range(rank, std::min(rank + bit, size)));
  }
}

/// Slot j of a rank holds the block for the rank j above it. The block travels there along the bits of j: by 1, 2, 4,
/// ... ranks at a time.
void all_to_all_bruck(Communicator& comm, const Blocks<const std::byte>& out, const Blocks<std::byte>& in,
                      std::span<const Index> counts, DType dtype) {
  const int rank = comm.rank(), size = comm.size();
  std::vector<std::vector<std::byte>> slots(static_cast<std::size_t>(size));
  for (int j = 0; j < size; ++j) {
    const auto block = out[(rank + j) % size];
    slots[j].assign(block.begin(), block.end());
  }
  for (int bit = 1; bit < size; bit *= 2) {
    const int to = (rank + bit) % size, from = (rank - bit + size) % size;
    std::vector<std::byte> leaving;
    Index arriving = 0;
    for (int j = bit; j < size; ++j) {
      if ((j & bit) == 0) continue;
      auto& slot = slots[j];
      leaving.insert(leaving.end(), slot.begin(), slot.end());
      const int origin = (from - (j & (bit - 1)) + size) % size;  // the block has already traveled along the lower bits
      slot.resize(static_cast<std::size_t>(counts[origin * size + (origin + j) % size] * size_of(dtype)));
      arriving += static_cast<Index>(slot.size());
    }
    std::vector<std::byte> arrived(static_cast<std::size_t>(arriving));
    swap(comm, to, leaving, from, arrived);
    auto next = arrived.begin();
    for (int j = bit; j < size; ++j) {
      if ((j & bit) == 0) continue;
      auto& slot = slots[j];
      std::copy_n(next, slot.size(), slot.begin());
      next += static_cast<std::ptrdiff_t>(slot.size());
    }
  }
  for (int j = 0; j < size; ++j) copy(slots[j], in[(rank - j + size) % size]);
}

}  // namespace

void all_gather(Communicator& comm, const void* local, void* all, std::span<const Index> counts, DType dtype,
                CollectiveAlgorithm algorithm) {
  check_algorithm(Verb::all_gather, algorithm);
  const auto result = blocks(all, counts, dtype);
  const auto mine = result[comm.rank()];
  copy({static_cast<const std::byte*>(local), mine.size()}, mine);
  if (algorithm == CollectiveAlgorithm::ring) return gather_ring(comm, result, comm.rank());
  if (algorithm == CollectiveAlgorithm::recursive_doubling) return all_gather_doubling(comm, all, counts, dtype);
  all_gather_bruck(comm, all, counts, dtype);
}

void broadcast(Communicator& comm, void* data, Index count, DType dtype, int root, CollectiveAlgorithm algorithm) {
  check_algorithm(Verb::broadcast, algorithm);
  const int size = comm.size();
  const int rank = (comm.rank() - root + size) % size;
  const auto peer = [&](int r) { return (r + root) % size; };
  if (algorithm == CollectiveAlgorithm::binomial)
    return broadcast_binomial(comm, buffer_of(data, count, dtype), rank, peer);
  const auto parts = blocks(data, balanced(count, size), dtype);
  scatter(comm, parts, rank, peer);
  gather_ring(comm, parts, rank);
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

void all_to_all(Communicator& comm, const void* send, void* recv, std::span<const Index> counts, DType dtype,
                CollectiveAlgorithm algorithm) {
  check_algorithm(Verb::all_to_all, algorithm);
  const auto rank = static_cast<std::size_t>(comm.rank()), size = static_cast<std::size_t>(comm.size());
  require(counts.size() == size * size, "there must be a count for each pair of ranks");
  const auto out_counts = counts.subspan(rank * size, size);
  std::vector<Index> in_counts;
  for (std::size_t from = 0; from < size; ++from) in_counts.push_back(counts[from * size + rank]);
  if (algorithm == CollectiveAlgorithm::pairwise) return all_to_all(comm, send, out_counts, recv, in_counts, dtype);
  all_to_all_bruck(comm, blocks(send, out_counts, dtype), blocks(recv, in_counts, dtype), counts, dtype);
}

}  // namespace partita::textbook
