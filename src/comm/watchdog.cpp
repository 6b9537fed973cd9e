#include "src/comm/watchdog.hpp"

#include <utility>

namespace partita {

Watchdog::Watchdog(const Waits& waits, std::chrono::milliseconds limit, std::function<void()> give_up)
    : thread_([this, &waits, limit, give_up = std::move(give_up)] { watch(waits, limit, give_up); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::watch(const Waits& waits, std::chrono::milliseconds limit, const std::function<void()>& give_up) {
  constexpr int looks = 20;  // checks within the limit; counted, so that a job that was suspended does not exceed it
  unsigned seen = waits.count();
  int looked = 0;
  for (std::unique_lock lock(mutex_); !changed_.wait_for(lock, limit / looks, [this] { return stopped_; });) {
    const unsigned now = waits.count();
    if (now != seen || now % 2 == 0) {
      seen = now;
      looked = 0;
    } else if (++looked >= looks) {
      return give_up();
    }
  }
}

}  // namespace partita
