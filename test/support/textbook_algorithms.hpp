#pragma once

#include "partita/base/collective_algorithm.hpp"
#include "partita/comm/communicator.hpp"

/// The collectives of src/comm/textbook.hpp, by any of the algorithms that the cost model knows. The closed forms of
/// the cost model (`collective_traffic`, `collective_cost`) are compared with their messages. Different algorithms sum
/// in different orders. Each collective throws Error on all ranks if it does not have the algorithm (see `algorithms`).
namespace partita::test {

/// recursive_doubling: as textbook::all_reduce.
/// ring: 2(p-1) rounds of n/p bytes.
/// rabenseifner: 2 floor(log2 p) rounds that move 2(p-1)/p n bytes in total. If p is not a power of two, two more
/// rounds of n bytes.
/// binomial: 2 ceil(log2 p) rounds of n bytes.
void all_reduce(Communicator& comm, void* data, Index count, DType dtype, ReduceOp op, CollectiveAlgorithm algorithm);
/// Each rank moves (p-1)/p n bytes.
/// ring: p-1 rounds.
/// bruck: ceil(log2 p) rounds.
/// recursive_doubling: log2 p rounds if p is a power of two. Otherwise it folds the ranks and takes floor(log2 p) + 2
/// rounds, the last of n bytes.
void all_gather(Communicator& comm, const void* local, void* all, std::span<const Index> counts, DType dtype,
                CollectiveAlgorithm algorithm);
/// Each rank moves (p-1)/p n bytes.
/// pairwise: p-1 rounds; it sums in rank order.
/// ring: p-1 rounds.
/// recursive_halving: log2 p rounds if p is a power of two. Otherwise it folds the ranks and takes floor(log2 p) + 2
/// rounds, the first of n bytes.
void reduce_scatter(Communicator& comm, const void* all, void* local, std::span<const Index> counts, DType dtype,
                    CollectiveAlgorithm algorithm);
/// binomial: ceil(log2 p) rounds of n bytes.
/// scatter_all_gather: ceil(log2 p) + p-1 rounds that move 2(p-1)/p n bytes in total.
void broadcast(Communicator& comm, void* data, Index count, DType dtype, int root, CollectiveAlgorithm algorithm);
/// An all_to_all in which every rank knows all counts, as it does if layouts give the blocks. counts[i * p + j]
/// elements go from rank i to rank j.
/// pairwise: p-1 rounds.
/// bruck: ceil(log2 p) rounds of about n/2 bytes. It forwards blocks through other ranks, which must know their sizes.
void all_to_all(Communicator& comm, const void* send, void* recv, std::span<const Index> counts, DType dtype,
                CollectiveAlgorithm algorithm);

}  // namespace partita::test
