#include "src/comm/textbook/textbook.hpp"

#include "src/comm/textbook/textbook_move.hpp"

#include "partita/base/dispatch.hpp"

#include <algorithm>

namespace partita::textbook {

void combine(void* to, const void* from, Index count, DType dtype, ReduceOp op) {
  dispatch(dtype, [&](auto t) {
    using T = decltype(t);
    using A = std::conditional_t<std::is_integral_v<T>, T, Accumulator<T>>;
    auto* a = static_cast<T*>(to);
    const auto* b = static_cast<const T*>(from);
    if (op == ReduceOp::sum)
      for (Index i = 0; i < count; ++i) a[i] = static_cast<T>(static_cast<A>(a[i]) + static_cast<A>(b[i]));
    else  // NaN wins, whichever side it is on, so that all ranks agree
      for (Index i = 0; i < count; ++i) a[i] = b[i] > a[i] || b[i] != b[i] ? b[i] : a[i];
  });
}

namespace {

/// Combines values that are given as bytes.
struct Sum {
  DType dtype;
  ReduceOp op;

  void operator()(std::span<std::byte> to, std::span<const std::byte> from) const {
    require(to.size() == from.size(), "combined buffers must have the same size");
    combine(to.data(), from.data(), static_cast<Index>(to.size()) / size_of(dtype), dtype, op);
  }
};

/// Unlike Fold, it folds rank+core into rank. This keeps the order in which thread ranks have always summed.
void all_reduce_doubling(Communicator& comm, std::span<std::byte> mine, const Sum& sum) {
  const int rank = comm.rank(), size = comm.size();
  const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  if (rank >= core) {
    send_to(comm, rank - core, mine);
    receive_from(comm, rank - core, mine);
    return;
  }
  std::vector<std::byte> other(mine.size());
  const bool doubled = rank + core < size;
  if (doubled) {
    receive_from(comm, rank + core, other);
    sum(mine, other);
  }
  for (int bit = 1; bit < core; bit *= 2) {
    swap(comm, rank ^ bit, mine, rank ^ bit, other);
    sum(mine, other);
  }
  if (doubled) send_to(comm, rank + core, mine);
}

/// Leaves each rank its own block of the sum. Block r travels once around the ring, from rank r+1 to rank r.
void scatter_ring(Communicator& comm, const Blocks<std::byte>& all, const Sum& sum) {
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
void scatter_halving(Communicator& comm, const Fold& fold, const Blocks<std::byte>& all, const Sum& sum) {
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

/// Receives the data of the right neighbor and adds it to `mine`.
void add_right_neighbor(Communicator& comm, std::span<std::byte> mine, const Sum& sum) {
  std::vector<std::byte> other(mine.size());
  receive_from(comm, comm.rank() + 1, other);
  sum(mine, other);
}

void all_reduce_rabenseifner(Communicator& comm, void* data, Index count, const Sum& sum) {
  const int rank = comm.rank();
  const Fold fold(comm.size());
  const auto parts = blocks(data, balanced(count, fold.core), sum.dtype);
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
void reduce_binomial(Communicator& comm, std::span<std::byte> mine, const Sum& sum) {
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

/// Sums in rank order.
void reduce_scatter_pairwise(Communicator& comm, const void* all, std::span<std::byte> local,
                             std::span<const Index> counts, const Sum& sum) {
  const int rank = comm.rank(), size = comm.size();
  const auto parts = blocks(all, counts, sum.dtype);
  const std::vector<Index> same(static_cast<std::size_t>(size), counts[rank]);
  std::vector<std::byte> buffer(static_cast<std::size_t>(size) * local.size());
  const auto arrived = blocks(buffer.data(), same, sum.dtype);
  copy(parts[rank], arrived[rank]);
  for (int round = 1; round < size; ++round) {
    const int to = (rank + round) % size, from = (rank - round + size) % size;
    swap(comm, to, parts[to], from, arrived[from]);
  }
  for (int r = 1; r < size; ++r) sum(arrived[0], arrived[r]);
  copy(arrived[0], local);
}

void reduce_scatter_halving(Communicator& comm, std::span<std::byte> work, std::span<std::byte> local,
                            std::span<const Index> counts, const Sum& sum) {
  const int rank = comm.rank();
  const Fold fold(comm.size());
  const auto parts = blocks(work.data(), counts, sum.dtype);
  if (fold.idle(rank)) {
    send_to(comm, rank - 1, work);
    receive_from(comm, rank - 1, local);
    return;
  }
  if (fold.doubled(rank)) add_right_neighbor(comm, work, sum);
  scatter_halving(comm, fold, blocks(work.data(), folded(fold, counts), sum.dtype), sum);
  if (fold.doubled(rank)) send_to(comm, rank + 1, parts[rank + 1]);
  copy(parts[rank], local);
}

}  // namespace

void all_reduce(Communicator& comm, void* data, Index count, DType dtype, ReduceOp op, CollectiveAlgorithm algorithm) {
  check_algorithm(Verb::all_reduce, algorithm);
  const Sum sum{dtype, op};
  const auto mine = buffer_of(data, count, dtype);
  if (algorithm == CollectiveAlgorithm::recursive_doubling) return all_reduce_doubling(comm, mine, sum);
  if (algorithm == CollectiveAlgorithm::rabenseifner) return all_reduce_rabenseifner(comm, data, count, sum);
  if (algorithm == CollectiveAlgorithm::ring) {
    const auto parts = blocks(data, balanced(count, comm.size()), dtype);
    scatter_ring(comm, parts, sum);
    return gather_ring(comm, parts, comm.rank());
  }
  reduce_binomial(comm, mine, sum);
  broadcast(comm, data, count, dtype, 0);
}

void reduce_scatter(Communicator& comm, const void* all, void* local, std::span<const Index> counts, DType dtype,
                    CollectiveAlgorithm algorithm) {
  check_algorithm(Verb::reduce_scatter, algorithm);
  const Sum sum{dtype, ReduceOp::sum};
  const auto mine = buffer_of(local, counts[comm.rank()], dtype);
  if (algorithm == CollectiveAlgorithm::pairwise) return reduce_scatter_pairwise(comm, all, mine, counts, sum);
  const auto whole = blocks(all, counts, dtype).all();
  std::vector<std::byte> work(whole.begin(), whole.end());
  if (algorithm == CollectiveAlgorithm::recursive_halving) return reduce_scatter_halving(comm, work, mine, counts, sum);
  const auto parts = blocks(work.data(), counts, dtype);
  scatter_ring(comm, parts, sum);
  copy(parts[comm.rank()], mine);
}

}  // namespace partita::textbook
