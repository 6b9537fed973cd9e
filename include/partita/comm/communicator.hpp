#pragma once

#include "partita/base/error.hpp"
#include "partita/base/tensor.hpp"
#include "partita/base/traffic.hpp"
#include "partita/base/transfer.hpp"
#include "partita/base/types.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace partita {

/// A contiguous buffer to be sent to rank `peer` of a communicator.
struct Send {
  int peer = 0;
  std::span<const std::byte> data;
};
/// A contiguous buffer to be received from rank `peer` of a communicator.
struct Recv {
  int peer = 0;
  std::span<std::byte> data;
};

/// Boxes of `from` that go to other ranks, and boxes of `to` that come from them, to be written or to be added. Both ends
/// of a message name the same box, of tensors with the same dimensions and dtype.
struct BoxExchange {
  const Tensor& from;
  std::span<const Transfer> sends;
  const Tensor& to;
  std::span<const Transfer> recvs;
  bool add = false;
};

/// How values are combined.
enum class ReduceOp : std::uint8_t { sum, max };

/// A communication that was started; `wait` finishes it. The buffers given to the verb must live until then.
/// Destroying a request that was not waited for waits, unless an exception unwinds: then the rank has failed and goes
/// down. A default-made request is complete.
class Request {
 public:
  /// What a transport keeps of a communication under way.
  class State {
   public:
    virtual ~State() = default;
    virtual void wait() = 0;
    virtual void progress() {}
  };

  Request() = default;
  explicit Request(std::unique_ptr<State> state) : state_(std::move(state)) {}
  Request(Request&&) = default;
  Request& operator=(Request&& other);  // NOLINT(performance-noexcept-move-constructor): waiting may fail
  ~Request();

  /// Returns when the buffers may be used. Throws CommunicationError if the communication failed.
  void wait();
  /// Lets it go on as far as it can without waiting: transports without a thread of their own move data only when called.
  void progress();

 private:
  std::unique_ptr<State> state_;
};

/// A transport failed (a peer died, a message was lost): no user's mistake, and the job cannot go on.
class CommunicationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Ranks that exchange messages and run collectives: MPI processes, threads of one process, NCCL ranks.
/// Every rank of the communicator calls the same verbs in the same order. Counts are elements, displacements follow
/// from counts (blocks lie one after the other in rank order). All verbs may be waited for later, and buffers of size
/// zero are allowed. Sums are formed in the same order on every rank, so that replicas agree bit for bit.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// True if messages travel while the ranks compute; false where the ranks' own cores copy them, as MPI ranks of one node
  /// do: then nothing is hidden by computing ahead of them. Thread ranks say true, so that tests compute ahead.
  virtual bool asynchronous() const { return true; }

  /// Sends and receives between pairs; messages of one pair match in the order in which both list them. No message to
  /// oneself.
  virtual Request exchange(std::span<const Send> sends, std::span<const Recv> recvs, Stream stream) = 0;
  /// The same for boxes of tensors, which need not lie in one piece; messages of one pair match as above, apart from
  /// those of the other exchange. The tensors' memory lives as long as the request. A transport that cannot read and
  /// write boxes where they lie packs them.
  virtual Request exchange_boxes(const BoxExchange& boxes, Stream stream);
  /// data = op over ranks of data, in place.
  virtual Request all_reduce(void* data, Index count, DType dtype, ReduceOp op, Stream stream) = 0;
  /// all = the ranks' `local` blocks in rank order; rank r gives counts[r].
  virtual Request all_gather(const void* local, void* all, std::span<const Index> counts, DType dtype,
                             Stream stream) = 0;
  /// local = block `rank` of the sum over ranks of `all`; block r has counts[r].
  virtual Request reduce_scatter(const void* all, void* local, std::span<const Index> counts, DType dtype,
                                 Stream stream) = 0;
  /// data of rank `root` on every rank.
  virtual Request broadcast(void* data, Index count, DType dtype, int root, Stream stream) = 0;
  /// recv = block r from rank r; send_counts[r] go to rank r, recv_counts[r] come from it.
  virtual Request all_to_all(const void* send, std::span<const Index> send_counts, void* recv,
                             std::span<const Index> recv_counts, DType dtype, Stream stream) = 0;

  /// The communicator of the ranks that gave the same color, ordered by key. Collective: every rank of this
  /// communicator calls it.
  virtual std::shared_ptr<Communicator> split(int color, int key) = 0;
};

/// A pointer to a communicator that somebody else owns.
/// @pre `comm` outlives the pointer and its copies.
inline std::shared_ptr<Communicator> borrow(Communicator& comm) { return {std::shared_ptr<void>(), &comm}; }

/// An Error that all ranks throw alike, since they agreed on it: rank 0 alone prints it.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// Calls f on every rank; if it throws Error on any, throws AgreedError with the lowest such rank's message on all.
/// What f does must not communicate. Collective: every rank of `comm` calls it.
void agree_or_throw(Communicator& comm, const std::function<void()>& f);

/// Gives every rank the message of the lowest rank that has one ("" for none), so that all fail alike.
std::string agree(Communicator& comm, const std::string& message);

}  // namespace partita
