#include "src/comm/watchdog.hpp"

#include <utility>

namespace partita {

Watchdog::Watchdog(const Waits& waits, std::chrono::milliseconds limit, std::function<void()> act)
    : thread_([this, &waits, limit, act = std::move(act)] { watch(waits, limit, act); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::watch(const Waits& waits, std::chrono::milliseconds limit, const std::function<void()>& act) {
  constexpr int looks = 20;  // checks within the limit; counted, so that a job that was suspended does not exceed it
  unsigned seen = waits.count();
  int looked = 0;
  for (std::unique_lock lock(mutex_); !changed_.wait_for(lock, limit / looks, [this] { return stopped_; });) {
    const unsigned now = waits.count();
    if (now != seen || now % 2 == 0) {
      seen = now;
      looked = 0;
    } else if (looked < looks && ++looked == looks) {
      act();
    }
  }
}

Periodic::Periodic(std::chrono::milliseconds interval, std::function<void()> act)
    : thread_([this, interval, act = std::move(act)] {
        for (std::unique_lock lock(mutex_); !changed_.wait_for(lock, interval, [this] { return stopped_; });) act();
      }) {}

Periodic::~Periodic() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace partita
