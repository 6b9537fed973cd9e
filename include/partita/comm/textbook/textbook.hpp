#pragma once

#include "partita/base/collective_algorithm.hpp"
#include "partita/comm/communicator.hpp"

namespace partita::textbook {

/// The textbook collectives over `exchange`, blocking, for any number of ranks: what thread ranks use, and what the closed
/// forms of the cost model (`sent`, `collective_cost`) are held against, message by message. Parameters as in Communicator;
/// p ranks, n bytes of the full vector; blocks without an element send nothing. Every verb throws Error, alike on all
/// ranks, for an algorithm that it does not have (`algorithms`). Default is what thread ranks use.
/// Each element of a sum is formed by one rank and then copied, or by all from the same pairs, so that replicas agree bit
/// for bit; different algorithms form it in different orders.

/// recursive_doubling: floor(log2 p) rounds of n bytes; ranks beyond the largest power of two fold into the others, which
/// takes two more. ring: 2(p-1) rounds of n/p bytes. rabenseifner: 2 floor(log2 p) rounds of together 2(p-1)/p n bytes,
/// and two of n for such ranks. binomial: 2 ceil(log2 p) rounds of n bytes.
void all_reduce(Communicator& comm, void* data, Index count, DType dtype, ReduceOp op,
                CollectiveAlgorithm algorithm = CollectiveAlgorithm::recursive_doubling);
/// (p-1)/p n bytes each, in p-1 rounds (ring) or ceil(log2 p) (bruck, and recursive_doubling for a power of two; for other
/// numbers that one folds and takes floor(log2 p) + 2, the last of n bytes).
void all_gather(Communicator& comm, const void* local, void* all, std::span<const Index> counts, DType dtype,
                CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring);
/// (p-1)/p n bytes each, in p-1 rounds (pairwise, which sums in rank order, and ring) or log2 p (recursive_halving; it
/// folds as above, the first round is of n bytes then).
void reduce_scatter(Communicator& comm, const void* all, void* local, std::span<const Index> counts, DType dtype,
                    CollectiveAlgorithm algorithm = CollectiveAlgorithm::pairwise);
/// binomial: ceil(log2 p) rounds of n bytes. scatter_all_gather: ceil(log2 p) + p-1 rounds of together 2(p-1)/p n bytes.
void broadcast(Communicator& comm, void* data, Index count, DType dtype, int root,
               CollectiveAlgorithm algorithm = CollectiveAlgorithm::binomial);
/// Pairwise exchange: p-1 rounds.
void all_to_all(Communicator& comm, const void* send, std::span<const Index> send_counts, void* recv,
                std::span<const Index> recv_counts, DType dtype);
/// The same where every rank knows all counts, as it does who cut the data by layouts: counts[i * p + j] elements go from
/// rank i to rank j. pairwise as above; bruck: ceil(log2 p) rounds of about n/2 bytes, since blocks travel by way of
/// others, who have to know how large they are.
void all_to_all(Communicator& comm, const void* send, void* recv, std::span<const Index> counts, DType dtype,
                CollectiveAlgorithm algorithm);

/// to = op(to, from), element by element, rounded to the dtype.
void combine(void* to, const void* from, Index count, DType dtype, ReduceOp op);

}  // namespace partita::textbook
