#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace partita {

/// Counts the starts and ends of a rank's waits for other ranks. The count is odd while the rank waits.
class Waits {
 public:
  /// One wait, from construction to destruction.
  class Scope {
   public:
    explicit Scope(Waits& waits) : waits_(waits) {
      waits_.turn();
      static_cast<void>(waits_.asked());  // it was about an earlier wait
    }
    ~Scope() { waits_.turn(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Waits& waits_;
  };

  unsigned count() const { return count_.load(std::memory_order_relaxed); }
  /// Asks the rank, from another thread, to say for whom it waits.
  void ask() { asked_.store(true, std::memory_order_relaxed); }
  /// Returns true once after each ask().
  bool asked() { return asked_.load(std::memory_order_relaxed) && asked_.exchange(false, std::memory_order_relaxed); }

 private:
  void turn() { count_.store(count() + 1, std::memory_order_relaxed); }  // only one thread writes

  std::atomic<unsigned> count_{0};
  std::atomic<bool> asked_{false};
};

/// A thread that calls `act` at every `interval`.
class Periodic {
 public:
  Periodic(std::chrono::milliseconds interval, std::function<void()> act);
  ~Periodic();
  Periodic(const Periodic&) = delete;
  Periodic& operator=(const Periodic&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::thread thread_;
};

/// Calls `act` from a thread of its own, once for each wait that lasts longer than `limit`. MPI itself waits forever
/// for a peer whose host or network link has failed. The thread checks the counter of waits at intervals, so that a
/// wait need not read a clock.
/// @pre `waits` outlives the watchdog.
class Watchdog {
 public:
  Watchdog(const Waits& waits, std::chrono::milliseconds limit, std::function<void()> act);

 private:
  Periodic thread_;
};

}  // namespace partita
