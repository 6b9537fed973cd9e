#pragma once

#include <chrono>

namespace partita {

/// What a thread rank does while it waits for a message: it looks after its other communication.
class Meanwhile {
 public:
  virtual ~Meanwhile() = default;
  /// A wait begins.
  virtual void begin() = 0;
  /// Called again and again during the wait, for a message of world rank `sender`. Returns how long to wait until the
  /// next call. May throw, which ends the wait.
  virtual std::chrono::microseconds look(int sender) = 0;

  /// What the calling thread does meanwhile; null: nothing.
  static Meanwhile*& of_thread() {
    thread_local Meanwhile* mine = nullptr;
    return mine;
  }
};

}  // namespace partita
