#pragma once

#include "partita/base/error.hpp"
#include "partita/base/traffic.hpp"
#include "partita/base/transfer.hpp"
#include "partita/base/types.hpp"
#include "partita/device/tensor.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace partita {

/// A contiguous buffer to send to rank `peer` of a communicator.
struct Send {
  int peer = 0;
  std::span<const std::byte> data;
};
/// A contiguous buffer to receive from rank `peer` of a communicator.
struct Recv {
  int peer = 0;
  std::span<std::byte> data;
};

/// An exchange of boxes between tensors. This rank sends boxes of `from` to other ranks and receives boxes of `to` from
/// other ranks. The sender and the receiver of a message name the same box, and their tensors have the same dimensions
/// and dtype.
struct BoxExchange {
  const Tensor& from;
  std::span<const Transfer> sends;
  const Tensor& to;
  std::span<const Transfer> recvs;
  bool add = false;  ///< true: add received elements to `to`; false: overwrite them
};

/// The operation of a reduction.
enum class ReduceOp : std::uint8_t { sum, max };

/// A communication that was started; `wait` completes it. A default-constructed request is complete.
/// The destructor waits if nobody has. It does not wait while an exception unwinds the stack, because then the rank has
/// failed and its peers may never answer.
/// @pre The buffers of the communication live until `wait` returns.
class Request {
 public:
  /// The transport's own data of a communication that is under way.
  class State {
   public:
    virtual ~State() = default;
    virtual void wait(Stream stream) = 0;
    virtual bool progress() { return false; }
  };

  Request() = default;
  /// `stream` is the one on which the communication was started. The destructor waits on it.
  explicit Request(std::unique_ptr<State> state, Stream stream = {}) : state_(std::move(state)), stream_(stream) {}
  Request(Request&&) = default;
  Request& operator=(Request&& other);  // NOLINT(performance-noexcept-move-constructor): waiting may fail
  ~Request();

  /// After this call, later work in the stream may use the buffers. On the CPU's stream, which runs everything at once,
  /// the call waits until the communication is complete. Throws CommunicationError if the communication failed.
  void wait(Stream stream = {});
  /// Advances the communication as far as possible without waiting. Transports without a thread of their own move data
  /// only while they are called. Returns true if it is complete; false as well if the transport cannot tell.
  bool progress();

 private:
  std::unique_ptr<State> state_;
  Stream stream_;
};

/// A transport failed, e.g. because a peer died or a message was lost. It is not a mistake of the user, and the job
/// cannot go on.
class CommunicationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Ranks that exchange messages and run collectives: MPI processes, threads of one process, or NCCL ranks.
/// Every rank of the communicator calls the same operations in the same order. Each operation starts a communication
/// and returns a request to wait for. Counts are in elements. Blocks lie one after the other in rank order, so their
/// displacements follow from the counts. Empty buffers are allowed. Sums are formed in the same order on every rank, so
/// that replicas agree bit for bit.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Returns true if messages travel while the ranks compute, so that computation can hide them. Returns false if the
  /// ranks' own cores copy the messages, as between MPI ranks of one node: then computation hides nothing. Thread ranks
  /// return true, so that tests run the overlapping code.
  virtual bool asynchronous() const { return true; }
  /// Returns true if exchange_boxes packs boxes that are not contiguous, into memory of their tensors' allocators.
  virtual bool packs() const { return true; }
  /// Returns true if a device can capture communications (Capture), so that a launch of their graph runs them again.
  /// Then each rank captures, and launches, the same ones.
  virtual bool captures() const { return false; }
  /// Says that a graph was launched in which this rank may have captured communications.
  virtual void launched() {}
  /// Returns the bytes that this rank holds for the communicator in the memory where its buffers lie: memory that all
  /// ranks share, or room for values that arrive. 0 if it holds none.
  virtual Index shared_bytes() const { return 0; }
  /// Returns the bytes that this rank would hold if these ranks were split into groups, for the communicator of the
  /// first group, to which it would belong.
  virtual Index shared_bytes_of(const std::vector<std::vector<int>>& /*groups*/) const { return 0; }

  /// Sends and receives messages between pairs of ranks. Messages of one pair match in the order in which both ranks
  /// list them. A rank sends no message to itself.
  virtual Request exchange(std::span<const Send> sends, std::span<const Recv> recvs, Stream stream) = 0;
  /// Sends and receives boxes of tensors, which need not be contiguous in memory. Messages of one pair match in the
  /// order in which both ranks list them, separately from the messages of `exchange`. The request keeps the memory of
  /// the tensors alive. The default packs boxes into messages; a transport overrides it if it can access boxes in
  /// place.
  virtual Request exchange_boxes(const BoxExchange& boxes, Stream stream);
  /// Reduces `data` over all ranks, in place: every rank gets the result.
  virtual Request all_reduce(void* data, Index count, DType dtype, ReduceOp op, Stream stream) = 0;
  /// Concatenates the ranks' `local` blocks in rank order in `all`. Block r has counts[r] elements.
  virtual Request all_gather(const void* local, void* all, std::span<const Index> counts, DType dtype,
                             Stream stream) = 0;
  /// Sums `all` over all ranks; rank r gets block r of the sum in `local`. Block r has counts[r] elements.
  virtual Request reduce_scatter(const void* all, void* local, std::span<const Index> counts, DType dtype,
                                 Stream stream) = 0;
  /// Copies `data` of rank `root` to every rank.
  virtual Request broadcast(void* data, Index count, DType dtype, int root, Stream stream) = 0;
  /// Sends block r of `send`, of send_counts[r] elements, to rank r; receives block r of `recv`, of recv_counts[r]
  /// elements, from rank r.
  virtual Request all_to_all(const void* send, std::span<const Index> send_counts, void* recv,
                             std::span<const Index> recv_counts, DType dtype, Stream stream) = 0;

  /// Returns a communicator of the ranks that passed the same color, ordered by key.
  /// Collective: every rank of this communicator calls it.
  virtual std::shared_ptr<Communicator> split(int color, int key) = 0;
};

/// Returns a pointer to a communicator that somebody else owns.
/// @pre `comm` outlives the pointer and its copies.
inline std::shared_ptr<Communicator> borrow(Communicator& comm) { return {std::shared_ptr<void>(), &comm}; }

/// An Error on which all ranks agreed and which all ranks throw. Only rank 0 prints it.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// An AgreedError that ends a run after it has begun: the exit status is 3.
class RunFailed : public AgreedError {
 public:
  using AgreedError::AgreedError;
};

/// Calls f on every rank. If f throws an exception on some ranks, every rank throws AgreedError with the message of the
/// lowest of them. A rank whose device or transport fails throws what f throws.
/// Collective: every rank of `comm` calls it.
/// @pre f does not communicate.
void agree_or_throw(Communicator& comm, const std::function<void()>& f);

/// Returns, on every rank, the message of the lowest rank whose `message` is not empty; "" if all are empty. So all
/// ranks fail with the same message. Collective: every rank of `comm` calls it.
std::string agree(Communicator& comm, const std::string& message);

/// Returns the number `mine` of each rank, by rank. Collective: every rank of `comm` calls it.
std::vector<double> gather_numbers(Communicator& comm, double mine);

}  // namespace partita
