#pragma once

#include "partita/device/memory.hpp"
#include "partita/train/data/augment.hpp"
#include "src/train/data/sample_list.hpp"

namespace partita {

/// The order in which a pass reads the samples of a data set.
class SampleOrder {
 public:
  /// 0, 1, 2, ...: needs no memory.
  static SampleOrder ascending(Index samples) { return {{}, {}, 0, samples}; }
  /// The order of an epoch, as shuffled() draws it.
  static SampleOrder shuffled(Index samples, std::uint64_t seed, Index epoch,
                              const std::shared_ptr<Allocator>& allocator) {
    const SampleList list(
        Allocator::allocate(allocator, SampleList::bytes(samples, samples), MemoryClass::data, Fill::none), samples,
        samples);
    list.is_short() ? shuffle(list.entries<std::uint32_t>(), seed, epoch) : shuffle(list.entries<Index>(), seed, epoch);
    return {list, {}, 0, samples};
  }
  /// @pre `samples` outlives the order.
  static SampleOrder given(std::span<const Index> samples) {
    return {{}, samples, 0, static_cast<Index>(samples.size())};
  }

  Index size() const { return size_; }
  Index operator[](Index place) const {
    if (list_.size() > 0) return list_[first_ + place];
    return given_.empty() ? first_ + place : given_[first_ + place];
  }
  /// Returns `count` samples from position `first` on.
  SampleOrder part(Index first, Index count) const { return {list_, given_, first_ + first, count}; }
  SampleOrder from(Index first) const { return part(first, size_ - first); }

 private:
  SampleOrder(SampleList list, std::span<const Index> given, Index first, Index size)
      : list_(std::move(list)), given_(given), first_(first), size_(size) {}

  SampleList list_;
  std::span<const Index> given_;
  Index first_, size_;
};

}  // namespace partita
