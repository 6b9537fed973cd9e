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

}  // namespace partita
