#include "src/train/data/prefetch.hpp"

#include <algorithm>

namespace partita {

namespace {

/// Number of samples kept ready: 64 MiB of them, but at least two.
std::size_t samples_ahead(std::size_t size) {
  constexpr std::size_t room = std::size_t{64} << 20;
  return std::max<std::size_t>(2, room / std::max<std::size_t>(size * sizeof(float), 1));
}

}  // namespace

Prefetch::Prefetch(std::vector<Index> order, std::size_t size, Read read)
    : order_(std::move(order)), size_(size), ahead_(samples_ahead(size)), read_(std::move(read)), thread_([this] {
        run();
      }) {}

Prefetch::~Prefetch() {
  {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Prefetch::run() {
  try {
    for (const Index sample : order_) {
      std::vector<float> values(size_);
      read_(sample, values);
      std::unique_lock lock(mutex_);
      ready_.push_back(std::move(values));
      changed_.notify_all();
      changed_.wait(lock, [&] { return ended_ || ready_.size() < ahead_; });
      if (ended_) return;
    }
  } catch (...) {
    const std::scoped_lock lock(mutex_);
    failed_ = std::current_exception();
    changed_.notify_all();
  }
}

bool Prefetch::take(Index sample, std::span<float> out) {
  if (next_ == order_.size() || order_[next_] != sample || out.size() != size_) return false;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !ready_.empty() || failed_; });
  if (ready_.empty()) std::rethrow_exception(failed_);
  std::copy(ready_.front().begin(), ready_.front().end(), out.begin());
  ready_.pop_front();
  ++next_;
  changed_.notify_all();
  return true;
}

}  // namespace partita
