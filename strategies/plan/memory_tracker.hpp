#pragma once

#include "partita/strategies/plan/memory.hpp"
#include "partita/strategies/plan/plan.hpp"

#include <algorithm>
#include <memory>
#include <unordered_map>

namespace partita {

/// Counts the bytes that a rank holds now, and their peak.
/// @pre The tracker outlives its buffers.
class MemoryTracker {
  /// Holds `bytes` bytes until it is destroyed.
  class Held {
   public:
    Held(MemoryTracker& of, MemoryClass memory, Index bytes) : of_(of), memory_(memory), bytes_(bytes) {}
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() {
      of_.now_[memory_] -= bytes_;
      of_.total_ -= bytes_;
      if (of_.sizes_) --of_.buffers_[bytes_of_block(bytes_)].now;
    }

   private:
    MemoryTracker& of_;
    MemoryClass memory_;
    Index bytes_;
  };

 public:
  /// A number of bytes, held until the last copy is destroyed.
  using Buffer = std::shared_ptr<const Held>;

  /// `sizes`: taken() is asked for. Without, empty buffers are null.
  explicit MemoryTracker(bool sizes) : sizes_(sizes) {}
  MemoryTracker(const MemoryTracker&) = delete;
  MemoryTracker& operator=(const MemoryTracker&) = delete;

  Buffer hold(MemoryClass memory, Index bytes) {
    if (bytes == 0 && !sizes_) return {};
    take(memory, bytes);
    if (sizes_) {
      Buffers& alike = buffers_[bytes_of_block(bytes)];
      alike.most = std::max(alike.most, ++alike.now);
    }
    return std::make_shared<const Held>(*this, memory, bytes);
  }
  /// Holds `bytes` bytes until the end.
  void take(MemoryClass memory, Index bytes) {
    now_[memory] += bytes;
    total_ += bytes;
    peak_.each[memory] = std::max(peak_.each[memory], now_[memory]);
    peak_.total = std::max(peak_.total, total_);
  }
  const MemoryPeak& peak() const { return peak_; }
  /// @pre It counts sizes.
  /// Returns the bytes that hold() needs if the memory of a buffer is used again for those of the same size alone.
  Index taken() const {
    Index bytes = 0;
    for (const auto& [size, alike] : buffers_) bytes += size * alike.most;
    return bytes;
  }

 private:
  /// Buffers of one size.
  struct Buffers {
    Index now = 0, most = 0;
  };

  bool sizes_;
  MemoryUse now_;
  Index total_ = 0;                             // of now_
  std::unordered_map<Index, Buffers> buffers_;  // by bytes_of_block()
  MemoryPeak peak_;
};

}  // namespace partita
