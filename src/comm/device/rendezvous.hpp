#pragma once

#include "partita/device/device.hpp"

#include <chrono>
#include <compare>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace partita {

/// Identifies a message between threads. Both ranks number the messages of their pair in the order in which they list
/// them.
struct MessageKey {
  std::vector<int> communicator;
  int from = 0, to = 0;  // ranks of the world
  Index number = 0;
  auto operator<=>(const MessageKey&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// The sender's or the receiver's buffer of a message, and when it may be used.
struct Endpoint {
  void* data = nullptr;
  std::size_t bytes = 0;
  Event ready;
};

/// Where the sender and the receiver of each message meet. The one that comes second learns the buffer of the first. It
/// starts the copy, and tells when the copy is done.
class Rendezvous {
 public:
  /// `limit` is how long a rank waits for the other one; 0 means for ever.
  explicit Rendezvous(std::chrono::milliseconds limit) : limit_(limit) {}
  /// Leaves this rank's endpoint for the other rank, or takes the endpoint that the other one has left. Returns true if
  /// it took it, into `other`. Throws CommunicationError if the two buffers differ in size.
  bool meet(const MessageKey& key, bool sends, const Endpoint& mine, Endpoint& other);
  /// Tells both ranks which event passes when the copy is done.
  void tell(const MessageKey& key, Event done);
  /// Tells the other rank that the copy has failed.
  void cancel(const MessageKey& key);
  /// Waits until the copy of a message has been started. Returns the event that passes when it is done. Throws
  /// CommunicationError if `peer` can start it no more, or has not started it in time. Each rank calls it once.
  Event done(const MessageKey& key, int peer);
  /// Takes this rank's endpoint back, since the rank has failed and its buffer is about to go. If the other rank has
  /// begun to copy, waits until it has started the copy, and returns the event that passes when the copy is done.
  Event withdraw(const MessageKey& key);
  /// Records that a rank starts nothing more: it has finished, or it has failed.
  void leave(int rank, bool failed);

 private:
  struct Meeting {
    bool met = false, sender_first = false, told = false, failed = false;
    Endpoint first;
    Event done;
    int asked = 0;  // ranks that know when it is done
  };

  std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<MessageKey, Meeting> meetings_;
  std::set<int> gone_;
  std::string failure_;
};

}  // namespace partita
