#pragma once

#include "partita/strategies/plan/memory.hpp"
#include "partita/strategies/plan/plan.hpp"

#include <algorithm>
#include <memory>

namespace partita {

/// What a rank holds at a moment, and the most that it has held. Buffers must not outlive it.
class MemoryTracker {
  /// So many bytes, until it is destroyed.
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
  /// Bytes that are held until the last copy is gone.
  using Buffer = std::shared_ptr<const Held>;

  MemoryTracker() = default;
  MemoryTracker(const MemoryTracker&) = delete;
  MemoryTracker& operator=(const MemoryTracker&) = delete;

  Buffer hold(MemoryClass memory, Index bytes) {
    take(memory, bytes);
    return std::make_shared<const Held>(*this, memory, bytes);
  }
  /// For good.
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
