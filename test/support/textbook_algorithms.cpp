#include "test/support/textbook_algorithms.hpp"

#include "src/comm/textbook.hpp"

#include <algorithm>

namespace partita::test {

using textbook::gather_ring;
using textbook::swap;

namespace {

void send_to(Communicator& comm, int to, std::span<const std::byte> out) { swap(comm, to, out, to, {}); }
void receive_from(Communicator& comm, int from, std::span<std::byte> in) { swap(comm, from, {}, from, in); }

/// Divides `count` elements into `parts` blocks whose sizes differ by at most one. The larger blocks come first.
std::vector<Index> balanced(Index count, int parts) {
  std::vector<Index> counts(static_cast<std::size_t>(parts), count / parts);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count % parts); ++i) ++counts[i];
  return counts;
}

/// Returns, for each place of a fold, the sum of the counts of its ranks.
std::vector<Index> folded(const Fold& fold, std::span<const Index> counts) {
  std::vector<Index> sums(static_cast<std::size_t>(fold.core));
  for (int rank = 0; rank < static_cast<int>(counts.size()); ++rank) sums[fold.place(rank)] += counts[rank];
  return sums;
}

/// Leaves each rank its own block of the sum. Block r travels once around the ring, from rank r+1 to rank r.
void scatter_ring(Communicator& comm, const Blocks<std::byte>& all, const Combining& sum) {
  const int rank = comm.rank(), size = comm.size();
  std::vector<std::byte> other(all.all().size());
  for (int round = 1; round < size; ++round) {
    const auto part = all[(rank - round - 1 + 2 * size) % size];
    const auto arrived = std::span(other).first(part.size());
    swap(comm, (rank + 1) % size, all[(rank - round + size) % size], (rank - 1 + size) % size, arrived);
    sum(part, arrived);
  }
}

/// Leaves each rank that acts for a place of a fold the place's block of the sum, by recursive halving.
void scatter_halving(Communicator& comm, const Fold& fold, const Blocks<std::byte>& all, const Combining& sum) {
  const int place = fold.place(comm.rank());
  std::vector<std::byte> other(all.all().size());
  // After the round, the `distance` places from one multiple of `distance` to the next have partial sums of their
  // blocks.
  for (int distance = fold.core / 2; distance > 0; distance /= 2) {
    const int peer = place ^ distance, mine = place & ~(distance - 1), theirs = peer & ~(distance - 1);
    const auto part = all.range(mine, mine + distance);
    const auto arrived = std::span(other).first(part.size());
    swap(comm, fold.first(peer), all.range(theirs, theirs + distance), fold.first(peer), arrived);
    sum(part, arrived);
  }
}

/// Gathers the blocks of all places of a fold by recursive doubling, on the ranks that act for the places.
void gather_doubling(Communicator& comm, const Fold& fold, const Blocks<std::byte>& all) {
  const int place = fold.place(comm.rank());
  // Before the round, the `distance` places from one multiple of `distance` to the next have all blocks of each other.
  for (int distance = 1; distance < fold.core; distance *= 2) {
    const int peer = place ^ distance, mine = place & ~(distance - 1), theirs = peer & ~(distance - 1);
    swap(comm, fold.first(peer), all.range(mine, mine + distance), fold.first(peer),
         all.range(theirs, theirs + distance));
  }
}

/// Receives the data of the right neighbor and adds it to `mine`.
void add_right_neighbor(Communicator& comm, std::span<std::byte> mine, const Combining& sum) {
  std::vector<std::byte> other(mine.size());
  receive_from(comm, comm.rank() + 1, other);
  sum(mine, other);
}

void all_reduce_rabenseifner(Communicator& comm, void* data, Index count, const Combining& sum) {
  const int rank = comm.rank();
  const Fold fold(comm.size());
  const auto parts = blocks_of(data, balanced(count, fold.core), sum.dtype);
  if (fold.idle(rank)) {
    send_to(comm, rank - 1, parts.all());
    receive_from(comm, rank - 1, parts.all());
    return;
  }
  if (fold.doubled(rank)) add_right_neighbor(comm, parts.all(), sum);
  scatter_halving(comm, fold, parts, sum);
  gather_doubling(comm, fold, parts);
  if (fold.doubled(rank)) send_to(comm, rank + 1, parts.all());
}

/// Leaves the sum on rank 0. In each round, the ranks in [bit, 2 * bit) send to the ranks `bit` below them.
void reduce_binomial(Communicator& comm, std::span<std::byte> mine, const Combining& sum) {
  const int rank = comm.rank(), size = comm.size();
  std::vector<std::byte> other(mine.size());
  for (int bit = static_cast<int>(std::bit_ceil(static_cast<unsigned>(size))) / 2; bit > 0; bit /= 2) {
    if (rank >= bit && rank < 2 * bit) send_to(comm, rank - bit, mine);
    if (rank < bit && rank + bit < size) {
      receive_from(comm, rank + bit, other);
      sum(mine, other);
    }
  }
}

void reduce_scatter_halving(Communicator& comm, std::span<std::byte> work, std::span<std::byte> local,
                            std::span<const Index> counts, const Combining& sum) {
  const int rank = comm.rank();
  const Fold fold(comm.size());
  const auto parts = blocks_of(work.data(), counts, sum.dtype);
  if (fold.idle(rank)) {
    send_to(comm, rank - 1, work);
    receive_from(comm, rank - 1, local);
    return;
  }
  if (fold.doubled(rank)) add_right_neighbor(comm, work, sum);
  scatter_halving(comm, fold, blocks_of(work.data(), folded(fold, counts), sum.dtype), sum);
  if (fold.doubled(rank)) send_to(comm, rank + 1, parts[rank + 1]);
  copy_bytes(parts[rank], local);
}

void all_gather_doubling(Communicator& comm, void* all, std::span<const Index> counts, DType dtype) {
  const int rank = comm.rank();
  const Fold fold(comm.size());
  const auto result = blocks_of(all, counts, dtype);
  if (fold.idle(rank)) {
    send_to(comm, rank - 1, result[rank]);
    receive_from(comm, rank - 1, result.all());
    return;
  }
  if (fold.doubled(rank)) receive_from(comm, rank + 1, result[rank + 1]);
  gather_doubling(comm, fold, blocks_of(all, folded(fold, counts), dtype));
  if (fold.doubled(rank)) send_to(comm, rank + 1, result.all());
}

/// Each rank stores the blocks in the order rank, rank+1, ..., so that the blocks it has are always the first ones.
void all_gather_bruck(Communicator& comm, void* all, std::span<const Index> counts, DType dtype) {
  const int rank = comm.rank(), size = comm.size();
  const auto result = blocks_of(all, counts, dtype);
  std::vector<Index> turned(counts.begin(), counts.end());
  std::rotate(turned.begin(), turned.begin() + rank, turned.end());
  std::vector<std::byte> buffer(result.all().size());
  const auto mine = blocks_of(buffer.data(), turned, dtype);
  copy_bytes(result[rank], mine[0]);
  for (int have = 1; have < size; have *= 2) {
    const int more = std::min(have, size - have);
    swap(comm, (rank - have + size) % size, mine.range(0, more), (rank + have) % size, mine.range(have, have + more));
  }
  for (int i = 1; i < size; ++i) copy_bytes(mine[i], result[(rank + i) % size]);
}

/// Scatters the blocks from the root, down a binomial tree. In each round, a rank that has the blocks of 2 * `bit`
/// ranks sends the upper half of them away.
void scatter(Communicator& comm, const Blocks<std::byte>& data, int root) {
  const int size = comm.size(), rank = (comm.rank() - root + size) % size;  // counts from the root
  for (int bit = static_cast<int>(std::bit_ceil(static_cast<unsigned>(size))) / 2; bit > 0; bit /= 2) {
    if (rank % (2 * bit) == 0 && rank + bit < size)
      send_to(comm, (rank + bit + root) % size, data.range(rank + bit, std::min(rank + 2 * bit, size)));
    if (rank % (2 * bit) == bit)
      receive_from(comm, (rank - bit + root) % size, data.range(rank, std::min(rank + bit, size)));
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
  for (int j = 0; j < size; ++j) copy_bytes(slots[j], in[(rank - j + size) % size]);
}

}  // namespace

void all_reduce(Communicator& comm, void* data, Index count, DType dtype, ReduceOp op, CollectiveAlgorithm algorithm) {
  check_algorithm(Verb::all_reduce, algorithm);
  const Combining sum{dtype, op};
  if (algorithm == CollectiveAlgorithm::recursive_doubling) return textbook::all_reduce(comm, data, count, dtype, op);
  if (algorithm == CollectiveAlgorithm::rabenseifner) return all_reduce_rabenseifner(comm, data, count, sum);
  if (algorithm == CollectiveAlgorithm::ring) {
    const auto parts = blocks_of(data, balanced(count, comm.size()), dtype);
    scatter_ring(comm, parts, sum);
    return gather_ring(comm, parts, comm.rank());
  }
  reduce_binomial(comm, buffer_of(data, count, dtype), sum);
  textbook::broadcast(comm, data, count, dtype, 0);
}

void reduce_scatter(Communicator& comm, const void* all, void* local, std::span<const Index> counts, DType dtype,
                    CollectiveAlgorithm algorithm) {
  check_algorithm(Verb::reduce_scatter, algorithm);
  if (algorithm == CollectiveAlgorithm::pairwise) return textbook::reduce_scatter(comm, all, local, counts, dtype);
  const Combining sum{dtype, ReduceOp::sum};
  const auto mine = buffer_of(local, counts[comm.rank()], dtype);
  const auto whole = blocks_of(all, counts, dtype).all();
  std::vector<std::byte> work(whole.begin(), whole.end());
  if (algorithm == CollectiveAlgorithm::recursive_halving) return reduce_scatter_halving(comm, work, mine, counts, sum);
  const auto parts = blocks_of(work.data(), counts, dtype);
  scatter_ring(comm, parts, sum);
  copy_bytes(parts[comm.rank()], mine);
}

void all_gather(Communicator& comm, const void* local, void* all, std::span<const Index> counts, DType dtype,
                CollectiveAlgorithm algorithm) {
  check_algorithm(Verb::all_gather, algorithm);
  if (algorithm == CollectiveAlgorithm::ring) return textbook::all_gather(comm, local, all, counts, dtype);
  const auto mine = blocks_of(all, counts, dtype)[comm.rank()];
  copy_bytes({static_cast<const std::byte*>(local), mine.size()}, mine);
  if (algorithm == CollectiveAlgorithm::recursive_doubling) return all_gather_doubling(comm, all, counts, dtype);
  all_gather_bruck(comm, all, counts, dtype);
}

void broadcast(Communicator& comm, void* data, Index count, DType dtype, int root, CollectiveAlgorithm algorithm) {
  check_algorithm(Verb::broadcast, algorithm);
  if (algorithm == CollectiveAlgorithm::binomial) return textbook::broadcast(comm, data, count, dtype, root);
  const auto parts = blocks_of(data, balanced(count, comm.size()), dtype);
  scatter(comm, parts, root);
  gather_ring(comm, parts, (comm.rank() - root + comm.size()) % comm.size());
}

void all_to_all(Communicator& comm, const void* send, void* recv, std::span<const Index> counts, DType dtype,
                CollectiveAlgorithm algorithm) {
  check_algorithm(Verb::all_to_all, algorithm);
  const auto rank = static_cast<std::size_t>(comm.rank()), size = static_cast<std::size_t>(comm.size());
  require(counts.size() == size * size, "there must be a count for each pair of ranks");
  const auto out_counts = counts.subspan(rank * size, size);
  std::vector<Index> in_counts;
  for (std::size_t from = 0; from < size; ++from) in_counts.push_back(counts[from * size + rank]);
  if (algorithm == CollectiveAlgorithm::pairwise)
    return textbook::all_to_all(comm, send, out_counts, recv, in_counts, dtype);
  all_to_all_bruck(comm, blocks_of(send, out_counts, dtype), blocks_of(recv, in_counts, dtype), counts, dtype);
}

}  // namespace partita::test
