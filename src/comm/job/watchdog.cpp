#include "src/comm/job/watchdog.hpp"

#include <utility>

namespace partita {

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

namespace {

constexpr int looks = 20;  // checks within the limit; counted, so that a job that was suspended does not exceed it

}  // namespace

Watchdog::Watchdog(const Waits& waits, std::chrono::milliseconds limit, std::function<void()> act)
    : thread_(limit / looks, [&waits, act = std::move(act), seen = waits.count(), looked = 0]() mutable {
        const unsigned now = waits.count();
        if (now != seen || now % 2 == 0) {
          seen = now;
          looked = 0;
        } else if (looked < looks && ++looked == looks) {
          act();
        }
      }) {}

}  // namespace partita
