#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

namespace partita {

/// What a rank does between two looks at what it waits for. Where ranks share a core it gives the core away: spinning
/// would keep the peer that it waits for off it. Linux's fair schedulers may let a rank that yields go on at once, so one
/// that waits longer sleeps (8 ranks on 2 busy cores: an all-reduce of 8 bytes takes 0.5 ms instead of 5.5).
class Backoff {
 public:
  explicit Backoff(bool oversubscribed) : patience_(oversubscribed ? 50 : 100000), spins_(!oversubscribed) {}

  void pause() {
    if (++attempts_ > patience_)
      std::this_thread::sleep_for(std::chrono::microseconds(1));
    else if (!spins_)
      sched_yield();
  }

 private:
  int patience_, attempts_ = 0;
  bool spins_;
};

}  // namespace partita
