#pragma once

#include "partita/base/types.hpp"

#include <cstdint>
#include <limits>
#include <memory>
#include <span>

namespace partita {

/// A list of samples of a data set in 4 bytes each, or in 8 if the set has more than 2^32 samples. The memory comes
/// from its owner. A copy refers to the same memory.
class SampleList {
 public:
  /// Returns the bytes of a list of `count` of a data set's `samples` samples.
  static Index bytes(Index count, Index samples) { return count * (is_short(samples) ? 4 : 8); }

  SampleList() = default;
  /// `memory` has bytes(count, samples) bytes.
  SampleList(std::shared_ptr<std::byte> memory, Index count, Index samples)
      : memory_(std::move(memory)), count_(count), short_(is_short(samples)) {}

  Index size() const { return count_; }
  Index operator[](Index place) const {
    return short_ ? static_cast<Index>(entries<std::uint32_t>()[place]) : entries<Index>()[place];
  }
  void set(Index place, Index sample) const {
    if (short_)
      entries<std::uint32_t>()[place] = static_cast<std::uint32_t>(sample);
    else
      entries<Index>()[place] = sample;
  }
  bool is_short() const { return short_; }
  template <class T>
  std::span<T> entries() const {
    return {reinterpret_cast<T*>(memory_.get()), static_cast<std::size_t>(count_)};
  }

 private:
  static bool is_short(Index samples) { return samples <= Index{std::numeric_limits<std::uint32_t>::max()} + 1; }

  std::shared_ptr<std::byte> memory_;
  Index count_ = 0;
  bool short_ = true;
};

}  // namespace partita
