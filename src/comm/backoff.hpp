#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace partita {

/// Counts the checks of a wait up to `most`. A rank may wait for hours and check a hundred million times a second, so
/// no integer counts them all.
class Checks {
 public:
  explicit constexpr Checks(int most, int done = 0) : most_(most), done_(done) {}
  /// Counts one check. Returns true from the `most`-th on.
  constexpr bool many() { return (done_ = std::min(done_, most_ - 1) + 1) >= most_; }

 private:
  int most_, done_;
};

/// What a waiting rank does between two checks. If ranks share a core, it yields the core: spinning would keep the peer
/// that it waits for off the core. Linux's fair schedulers may let a rank that yields continue at once, so a rank that
/// waits longer sleeps. With 8 ranks on 2 busy cores, an all-reduce of 8 bytes then takes 0.5 ms instead of 5.5 ms.
class Backoff {
 public:
  explicit Backoff(bool oversubscribed) : checks_(oversubscribed ? 51 : 100001), spins_(!oversubscribed) {}

  void pause() {
    if (checks_.many())
      std::this_thread::sleep_for(std::chrono::microseconds(1));
    else if (!spins_)
      sched_yield();
  }

 private:
  Checks checks_;
  bool spins_;
};

/// What a rank does between two checks while it waits for ranks of its node, which answer through shared memory.
///
/// A rank with a core of its own spins, since answers come soon. But another program may run on its core, or even the
/// rank that it waits for, though the node has cores for all ranks; then spinning lasts for a whole time slice of
/// several milliseconds. So after a while the rank offers its core with sched_yield(), which returns at once from a
/// core that nobody else wants. If it took long, somebody else ran: for a while, the rank then sleeps instead, because
/// Linux's fair schedulers let who has slept continue at once, and who has yielded wait for a slice.
class NodeWait {
  using Clock = std::chrono::steady_clock;
  using Microseconds = std::chrono::microseconds;

 public:
  /// What a rank remembers from one wait to the next.
  struct Memory {
    bool oversubscribed = false;  ///< the node has more ranks than cores
    Clock::time_point shares_core_until{};
  };

  /// A wait begins.
  explicit NodeWait(Memory& memory) : memory_(memory) {}

  /// Called after each check that failed. `sleep` sleeps until another rank has done something, and a limited time at
  /// most.
  template <class Sleep>
  void pause(Sleep&& sleep) {
    if (memory_.oversubscribed) yields_.many() ? sleep() : static_cast<void>(sched_yield());
  }
  /// Called after one in many of these checks, since the clock takes as long as several of them.
  template <class Sleep>
  void pause_longer(Sleep&& sleep) {
    if (memory_.oversubscribed) return;
    const auto now = Clock::now();
    if (now < memory_.shares_core_until) return sleep();
    if (since_ == Clock::time_point()) since_ = now;
    if (now - since_ >= spin) yield(now);
  }

 private:
  void yield(Clock::time_point before) {
    sched_yield();
    if (const auto now = Clock::now(); now - before >= slice) memory_.shares_core_until = now + kept;
  }

  static constexpr Microseconds spin{20}, slice{300}, kept{100'000};

  Memory& memory_;
  Checks yields_{10};  // of ranks that share cores, before they sleep
  Clock::time_point since_{};
};

}  // namespace partita
