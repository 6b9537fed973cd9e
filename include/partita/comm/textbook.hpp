#pragma once

#include "partita/comm/communicator.hpp"

namespace partita::textbook {

/// The textbook collectives over `exchange`, blocking: what thread ranks use, and what checks the closed forms of the
/// cost model (Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, 2005).
/// Parameters as in Communicator; p ranks, n bytes of the full vector.

/// Recursive doubling: floor(log2 p) rounds of n bytes; ranks beyond the largest power of two fold into the others,
/// which takes two more.
void all_reduce(Communicator& comm, void* data, Index count, DType dtype, Op op);
/// Ring: p-1 rounds, (p-1)/p n bytes.
void all_gather(Communicator& comm, const void* local, void* all, std::span<const Index> counts, DType dtype);
/// Pairwise exchange: p-1 rounds, (p-1)/p n bytes; sums are formed in rank order.
void reduce_scatter(Communicator& comm, const void* all, void* local, std::span<const Index> counts, DType dtype);
/// Binomial tree: ceil(log2 p) rounds of n bytes.
void broadcast(Communicator& comm, void* data, Index count, DType dtype, int root);
/// Pairwise exchange: p-1 rounds.
void all_to_all(Communicator& comm, const void* send, std::span<const Index> send_counts, void* recv,
                std::span<const Index> recv_counts, DType dtype);

/// to = op(to, from), element by element, rounded to the dtype.
void combine(void* to, const void* from, Index count, DType dtype, Op op);

}  // namespace partita::textbook
