#pragma once

#include "partita/base/types.hpp"
#include "partita/comm/communicator.hpp"

#include <array>

namespace partita {

/// The calls of NCCL that ranks make. A test can stand in for the library. A call that fails throws DeviceError.
class NcclLibrary {
 public:
  using Id = std::array<std::int32_t, 32>;
  using Comm = void*;

  virtual ~NcclLibrary() = default;
  /// Returns a number by which ranks find each other. One rank asks for it, and tells the others.
  virtual Id make_id() = 0;
  /// Connects the ranks of `host`, which all pass the same id.
  virtual Comm start(const Id& id, Communicator& host) = 0;
  /// Splits a communicator, as MPI_Comm_split does. The parts share what the library holds for their ranks, so that
  /// they cost little memory. Collective: every rank of `comm` calls it.
  /// @pre No message of `comm` is under way.
  virtual Comm split(Comm comm, int color, int key) = 0;
  /// Returns what has failed since the start, perhaps on another rank; "" if nothing has. Other threads may call it.
  virtual std::string error(Comm comm) = 0;
  /// Ends a communicator whose messages have arrived. If it throws, the communicator is left to abort(). Collective:
  /// all ranks end their communicators, in the same order.
  virtual void end(Comm comm) = 0;
  /// Ends a communicator of a rank that has failed. What is under way is lost.
  virtual void abort(Comm comm) = 0;

  /// The calls from group_start() to group_end() start together.
  virtual void group_start() = 0;
  virtual void group_end() = 0;
  virtual void send(const void* from, Index count, DType dtype, int peer, Comm comm, Stream stream) = 0;
  virtual void recv(void* to, Index count, DType dtype, int peer, Comm comm, Stream stream) = 0;
  virtual void all_reduce(void* data, Index count, DType dtype, ReduceOp op, Comm comm, Stream stream) = 0;
  /// Concatenates blocks of `count` elements.
  virtual void all_gather(const void* local, void* all, Index count, DType dtype, Comm comm, Stream stream) = 0;
  /// Sums; rank r gets block r, of `count` elements.
  virtual void reduce_scatter(const void* all, void* local, Index count, DType dtype, Comm comm, Stream stream) = 0;
  /// Sums on the rank `root` alone.
  virtual void reduce(const void* from, void* to, Index count, DType dtype, int root, Comm comm, Stream stream) = 0;
  virtual void broadcast(const void* from, void* to, Index count, DType dtype, int root, Comm comm, Stream stream) = 0;
};

}  // namespace partita
