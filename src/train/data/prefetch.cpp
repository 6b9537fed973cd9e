#include "src/train/data/prefetch.hpp"

#include <algorithm>

namespace partita {

namespace {

/// Number of samples of `size` bytes that are kept ready: 64 MiB of them, but at least two, and no more than there are.
Index samples_ahead(Index count, Index size) {
  constexpr Index room = Index{64} << 20;
  return std::min(count, std::max<Index>(2, room / std::max<Index>(size, 1)));
}

SampleList compact(std::span<const Index> order, Index samples) {
  const auto count = static_cast<Index>(order.size());
  const std::shared_ptr<std::byte> memory(new std::byte[SampleList::bytes(count, samples)],
                                          std::default_delete<std::byte[]>());
  SampleList list(memory, count, samples);
  for (Index i = 0; i < count; ++i) list.set(i, order[i]);
  return list;
}

}  // namespace

Prefetch::Prefetch(std::span<const Index> order, Index samples, Index size, Read read)
    : order_(compact(order, samples)),
      size_(static_cast<std::size_t>(size)),
      slots_(static_cast<std::size_t>(samples_ahead(order_.size(), size))),
      ring_(slots_ * size_),
      read_(std::move(read)),
      thread_([this] { run(); }) {}

Prefetch::~Prefetch() {
  {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Index Prefetch::bytes(Index count, Index samples, Index size) {
  return SampleList::bytes(count, samples) + samples_ahead(count, size) * size;
}

Index Prefetch::bytes() const { return order_.size() * (order_.is_short() ? 4 : 8) + static_cast<Index>(ring_.size()); }

void Prefetch::run() {
  try {
    for (std::size_t i = 0; i < static_cast<std::size_t>(order_.size()); ++i) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ended_ || i < next_ + slots_; });
        if (ended_) return;
      }
      read_(order_[static_cast<Index>(i)], slot(i));
      const std::scoped_lock lock(mutex_);
      read_so_far_ = i + 1;
      changed_.notify_all();
    }
  } catch (...) {
    const std::scoped_lock lock(mutex_);
    failed_ = std::current_exception();
    changed_.notify_all();
  }
}

/// Returns false unless `sample` is the next one in the order.
bool Prefetch::wait_for(Index sample) {
  const auto next = static_cast<Index>(next_);
  if (next == order_.size() || order_[next] != sample) return false;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return read_so_far_ > next_ || failed_; });
  if (read_so_far_ == next_) std::rethrow_exception(failed_);
  return true;
}

/// Gives the slot of the next sample free.
void Prefetch::release() {
  const std::scoped_lock lock(mutex_);
  ++next_;
  changed_.notify_all();
}

}  // namespace partita
