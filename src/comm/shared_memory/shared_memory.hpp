#pragma once

#include "src/comm/shared_memory/shared_collective.hpp"
#include "src/comm/shared_memory/shared_exchange.hpp"
#include "src/comm/shared_memory/streaming.hpp"

#include "partita/comm/communicator.hpp"

#include <mpi.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>

namespace partita {

/// Collectives, and exchanges of boxes, over ranks of one node through memory that they share, where a copy costs a
/// fraction of a message. The data are blocks, one a rank:
///
///     stage    every rank copies the others' blocks into its slot                      (all_gather: its own)
///     reduce   rank r sums block r of all slots, into its result and its slot          (all_gather: nothing)
///     gather   every rank copies the other blocks from the slots of those who have them (reduce_scatter: nothing)
///
/// piece by piece, so that slots stay in the cache and the three overlap from rank to rank; what is small is summed by
/// every rank alike, in rank order, without the gather. Those of one communicator run in the order in which they were
/// started. One an MPI communicator; collective to make.
class SharedMemory {
 public:
  /// Makes the slots, or returns null if `comm` has one rank or ranks on several nodes; `one_node` if it is known to have
  /// not. Collective.
  static std::unique_ptr<SharedMemory> make(MPI_Comm comm, bool one_node);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::shared_ptr<const SharedOperation> all_reduce(void* data, Index count, DType dtype, ReduceOp op);
  std::shared_ptr<const SharedOperation> all_gather(const void* local, void* all, std::span<const Index> counts,
                                                    DType dtype);
  std::shared_ptr<const SharedOperation> reduce_scatter(const void* all, void* local, std::span<const Index> counts,
                                                        DType dtype);
  std::shared_ptr<const SharedOperation> exchange(const BoxExchange& boxes);

  /// Goes on with what was started, without waiting.
  void progress();
  /// Sleeps until another rank has done something that this one may wait for, or for half a millisecond; for nodes with
  /// more ranks than cores.
  void sleep(const SharedOperation& awaited);

 private:
  struct Flags;
  explicit SharedMemory(MPI_Comm comm);
  Flags& flags(int rank) const;
  std::byte* slot(int rank, Index piece) const;
  std::shared_ptr<const SharedOperation> start(std::shared_ptr<SharedCollective> operation);
  template <class CounterOf>
  void publish(Index piece, CounterOf&& counter);
  void ring();
  bool streams(const SharedCollective& now, Index piece) const;
  template <class Step>
  void timed(const SharedCollective& now, Index piece, Step&& step);
  bool decides(const SharedCollective& now, Index piece) const;
  bool advance(SharedCollective& now);
  bool stage(SharedCollective& now);
  bool reduce(SharedCollective& now);
  bool gather(SharedCollective& now);

  MPI_Win window_ = MPI_WIN_NULL;
  int rank_ = 0, size_ = 1;
  std::vector<std::byte*> segments_;                // one a rank
  Index before_ = 0;                                // pieces of all operations before the one at the front
  Index large_ = SharedCollective::Choice::first;   // the next large operation's first piece
  std::optional<SharedCollective::Choice> choice_;  // of rank 0
  std::deque<std::shared_ptr<SharedCollective>> started_;
  std::unique_ptr<SharedExchange> exchange_;
};

}  // namespace partita
