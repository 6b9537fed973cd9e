#pragma once

#include "partita/base/types.hpp"

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace partita {

/// A set of samples in one and a half bits per sample of the data set.
class SampleSet {
 public:
  SampleSet() = default;
  /// The set of `members`, of a data set of `samples` samples.
  SampleSet(std::span<const Index> members, Index samples) : bits_(words(samples), 0), before_(words(samples), 0) {
    for (const Index sample : members) bits_[word(sample)] |= bit(sample);
    for (std::size_t i = 0; i < bits_.size(); ++i) {
      before_[i] = static_cast<std::uint32_t>(count_);
      count_ += std::popcount(bits_[i]);
    }
  }
  /// Returns the bytes of a set.
  static Index bytes(Index samples) {
    return static_cast<Index>(words(samples) * (sizeof(std::uint64_t) + sizeof(std::uint32_t)));
  }
  Index bytes() const { return static_cast<Index>(bits_.size() * (sizeof(std::uint64_t) + sizeof(std::uint32_t))); }

  Index count() const { return count_; }
  bool has(Index sample) const { return word(sample) < bits_.size() && (bits_[word(sample)] & bit(sample)) != 0; }
  /// Returns how many members come before `sample`.
  Index place(Index sample) const {
    return before_[word(sample)] + std::popcount(bits_[word(sample)] & (bit(sample) - 1));
  }
  /// Calls visit(sample) for each member, in ascending order.
  template <class Visit>
  void each(Visit&& visit) const {
    for (std::size_t i = 0; i < bits_.size(); ++i)
      for (std::uint64_t rest = bits_[i]; rest != 0; rest &= rest - 1)
        visit(static_cast<Index>(i) * 64 + std::countr_zero(rest));
  }
  bool operator==(const SampleSet&) const = default;

 private:
  static std::size_t words(Index samples) { return (static_cast<std::size_t>(samples) + 63) / 64; }
  static std::size_t word(Index sample) { return static_cast<std::size_t>(sample) / 64; }
  static std::uint64_t bit(Index sample) { return std::uint64_t{1} << (static_cast<std::uint64_t>(sample) % 64); }

  std::vector<std::uint64_t> bits_;
  std::vector<std::uint32_t> before_;  // by word: the members in all words before it
  Index count_ = 0;
};

}  // namespace partita
