#pragma once

#include "src/comm/shared_memory/segments.hpp"
#include "src/comm/shared_memory/shared_collective.hpp"
#include "src/comm/shared_memory/shared_exchange.hpp"
#include "src/comm/shared_memory/streaming.hpp"

#include "partita/comm/communicator.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>

namespace partita {

/// Collectives and exchanges of boxes between ranks of one node, through memory that they share. A copy in memory costs
/// a fraction of a message. The data of a collective are blocks, one per rank. A collective has three steps:
///
///     stage    every rank copies the other ranks' blocks into its slot           (all_gather: its own block)
///     reduce   rank r sums block r of all slots, into its result and its slot    (all_gather: nothing)
///     gather   every rank copies block r from the slot of rank r, for all r      (reduce_scatter: nothing)
///
/// The steps run piece by piece, so that a piece stays in the cache and different ranks can be in different steps.
/// A small all_reduce has no gather: every rank sums everything, in rank order. Collectives of one communicator run in
/// the order in which they were started. There is one SharedMemory per communicator and rank.
class SharedMemory {
 public:
  /// `segments` has bytes(size) bytes for each rank.
  /// @pre Every rank constructs its object before any rank uses its own.
  SharedMemory(int rank, int size, std::shared_ptr<const Segments> segments);
  /// Returns the bytes that each of `ranks` ranks provides.
  static Index bytes(int ranks);
  /// Returns true for the first caller among all ranks.
  bool first_to_tell() const;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::shared_ptr<const SharedOperation> all_reduce(void* data, Index count, DType dtype, ReduceOp op);
  std::shared_ptr<const SharedOperation> all_gather(const void* local, void* all, std::span<const Index> counts,
                                                    DType dtype);
  std::shared_ptr<const SharedOperation> reduce_scatter(const void* all, void* local, std::span<const Index> counts,
                                                        DType dtype);
  std::shared_ptr<const SharedOperation> exchange(const BoxExchange& boxes);

  /// Advances everything that was started, without waiting.
  void progress();
  /// True if nothing that was started is under way.
  bool idle() const { return started_.empty() && exchange_->idle(); }
  /// Returns the ranks of the communicator for which an operation waits.
  std::vector<int> missing(const SharedOperation& operation) const;
  /// Sleeps until another rank has done something for which this rank may wait, but at most half a millisecond. Used on
  /// nodes with more ranks than cores.
  void sleep(const SharedOperation& awaited);

 private:
  struct Flags;
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

  int rank_ = 0, size_ = 1;
  std::shared_ptr<const Segments> segments_;
  Index before_ = 0;                                // pieces of all collectives before the one at the front
  Index large_ = SharedCollective::Choice::first;   // number of the next large collective's first piece
  std::optional<SharedCollective::Choice> choice_;  // on rank 0 only
  std::deque<std::shared_ptr<SharedCollective>> started_;
  std::unique_ptr<SharedExchange> exchange_;
};

}  // namespace partita
