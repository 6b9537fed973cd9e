#pragma once

#include "partita/strategies/plan/memory.hpp"
#include "partita/strategies/plan/plan.hpp"

#include <algorithm>
#include <memory>

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
    ~Held() { of_.now_[memory_] -= bytes_; }

   private:
    MemoryTracker& of_;
    MemoryClass memory_;
    Index bytes_;
  };

 public:
  /// A number of bytes, held until the last copy is destroyed.
  using Buffer = std::shared_ptr<const Held>;

  MemoryTracker() = default;
  MemoryTracker(const MemoryTracker&) = delete;
  MemoryTracker& operator=(const MemoryTracker&) = delete;

  Buffer hold(MemoryClass memory, Index bytes) {
    take(memory, bytes);
    return std::make_shared<const Held>(*this, memory, bytes);
  }
  /// Holds `bytes` bytes until the end.
  void take(MemoryClass memory, Index bytes) {
    now_[memory] += bytes;
    peak_.each[memory] = std::max(peak_.each[memory], now_[memory]);
    peak_.total = std::max(peak_.total, now_.total());
  }
  const MemoryPeak& peak() const { return peak_; }

 private:
  MemoryUse now_;
  MemoryPeak peak_;
};

}  // namespace partita
