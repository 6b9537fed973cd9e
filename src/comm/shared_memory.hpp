#pragma once

#include "shared_exchange.hpp"

#include "partita/comm/communicator.hpp"

#include <mpi.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>

namespace partita {

/// Sums, and exchanges of boxes, over ranks of one node through memory that they share, where a copy costs a fraction of a message:
///
///     stage    every rank copies its piece into its slot
///     reduce   rank r sums block r of all pieces, into its own data and its slot
///     gather   every rank copies the other blocks from the slots of those who summed them
///
/// piece by piece, so that slots stay in the cache and the three overlap from rank to rank; what is small is summed by
/// every rank alike, in rank order, without the gather. One an MPI communicator; collective to make.
class SharedMemory {
 public:
  /// Makes the slots, or returns null if `comm` has one rank or ranks on several nodes; `one_node` if it is known to have
  /// not. Collective.
  static std::unique_ptr<SharedMemory> make(MPI_Comm comm, bool one_node);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// An all-reduce that was started. Those of one communicator run in the order in which they were started.
  class Operation final : public SharedOperation {
   public:
    bool done() const override { return done_; }

   private:
    friend class SharedMemory;
    std::byte* data_ = nullptr;
    Index count_ = 0;
    DType dtype_ = DType::f64;
    Op op_ = Op::sum;
    Index pieces_ = 0, per_piece_ = 0;  // elements a piece, the last may be shorter
    bool small_ = false;
    Index staged_ = 0, reduced_ = 0, gathered_ = 0;  // pieces so far

    Index element() const { return size_of(dtype_); }
    std::byte* at(Index piece) const { return data_ + piece * per_piece_ * element(); }
    Index extent(Index piece) const { return std::min(per_piece_, count_ - piece * per_piece_); }
    bool done_ = false;
  };
  std::shared_ptr<const SharedOperation> all_reduce(void* data, Index count, DType dtype, Op op);
  std::shared_ptr<const SharedOperation> exchange(const BoxExchange& boxes);

  /// Goes on with what was started, without waiting.
  void progress();
  /// Sleeps until another rank has done something that this one may wait for, or for half a millisecond; for nodes with
  /// more ranks than cores.
  void sleep(const SharedOperation& awaited);
  /// True if nothing is under way.
  bool idle() const { return started_.empty() && exchange_->idle(); }

 private:
  struct Flags;
  explicit SharedMemory(MPI_Comm comm);
  Flags& flags(int rank) const;
  std::byte* slot(int rank, Index piece) const;
  template <class CounterOf>
  void publish(Index piece, CounterOf&& counter);
  void ring();
  bool advance(Operation& now);
  bool stage(Operation& now);
  bool reduce(Operation& now);
  bool gather(Operation& now);

  MPI_Win window_ = MPI_WIN_NULL;
  int rank_ = 0, size_ = 1;
  std::vector<std::byte*> segments_;  // one a rank
  Index before_ = 0;                  // pieces of all operations before the one at the front
  std::deque<std::shared_ptr<Operation>> started_;
  std::unique_ptr<SharedExchange> exchange_;
};

}  // namespace partita
