#pragma once

#include "partita/base/device.hpp"

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
struct Passage {
  std::vector<int> communicator;
  int from = 0, to = 0;  // ranks of the world
  Index number = 0;
  auto operator<=>(const Passage&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// One side of a message: a buffer, and when it may be used.
struct Side {
  void* data = nullptr;
  std::size_t bytes = 0;
  Event ready;
};

/// Where the two sides of each message meet. The side that comes second gets the first one's, copies, and tells when
/// the copy is done.
class MeetingBoard {
 public:
  /// `limit` is how long a side waits for the other one; 0: for ever.
  explicit MeetingBoard(std::chrono::milliseconds limit) : limit_(limit) {}
  /// Leaves a side for the other one, or takes what the other one has left. Returns true if it took it into `other`.
  bool meet(const Passage& passage, bool sends, const Side& mine, Side& other);
  /// Tells both sides when the copy is done.
  void tell(const Passage& passage, Event done);
  /// Tells the other side that the copy has failed.
  void cancel(const Passage& passage);
  /// Waits until the copy of a message has been started, and returns when it is done. Throws CommunicationError if
  /// `peer` can start it no more, or has not started it in time. Each side calls it once.
  Event done(const Passage& passage, int peer);
  /// Takes a side back, since its rank has failed and its buffer is about to go. Waits if the other side has begun to
  /// copy.
  /// Returns when that copy is done.
  Event withdraw(const Passage& passage);
  /// Records that a rank starts nothing more: it has finished, or it has failed.
  void leave(int rank, bool failed);

 private:
  struct Meeting {
    bool met = false, sender_first = false, told = false, failed = false;
    Side first;
    Event done;
    int asked = 0;  // sides that know when it is done
  };

  std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Passage, Meeting> meetings_;
  std::set<int> gone_;
  std::string failure_;
};

}  // namespace partita
