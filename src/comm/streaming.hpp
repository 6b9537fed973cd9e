#pragma once

#include "partita/base/types.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace partita {

#ifdef __SSE2__
inline constexpr bool has_streaming_stores = true;
/// Copies with stores that go past the caches (non-temporal), and lets nothing that is stored afterwards be seen before.
inline void stream_copy(std::byte* to, const std::byte* from, Index bytes) {
  constexpr Index wide = sizeof(__m128i);
  const auto misaligned = static_cast<Index>(reinterpret_cast<std::uintptr_t>(to) % wide);
  const Index head = misaligned == 0 ? 0 : std::min(wide - misaligned, bytes);
  std::memcpy(to, from, static_cast<std::size_t>(head));
  Index i = head;
  for (; i + wide <= bytes; i += wide)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  std::memcpy(to + i, from + i, static_cast<std::size_t>(bytes - i));
  _mm_sfence();
}
#else
inline constexpr bool has_streaming_stores = false;
inline void stream_copy(std::byte* to, const std::byte* from, Index bytes) {
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}
#endif

/// Runs it and returns how long it took.
template <class Step>
double seconds_of(Step&& step) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  step();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Whether the pieces that ranks write for each other are streamed past the caches. Where cores share a cache they should
/// not be: two ranks sum 1 MiB in 60 us, streamed in 95. Where they do not, a line that is written is called back from the
/// other core's cache: 700 us against 85. Which of both holds nobody tells a process, and virtual machines move. So of
/// every 251 pieces (a prime: any piece of operations that are alike) the fifth is written the other way, and the way is
/// changed if that took less time for each byte, of those who write and read it, than the fastest of the four before it.
class StreamingChoice {
 public:
  static constexpr Index period = 251, trial = 4;

  /// `streams` is what those who write read.
  explicit StreamingChoice(std::atomic<bool>& streams) : streams_(streams) {}

  static bool streams(const std::atomic<bool>& shared, Index piece) {
    return has_streaming_stores && shared.load(std::memory_order_relaxed) != (piece % period == trial);
  }
  /// True if the decision needs the time of the piece.
  static bool needs(Index piece) { return piece % period <= trial; }
  /// A step of a piece took so long.
  void add(Index piece, double seconds) {
    if (needs(piece)) seconds_[static_cast<std::size_t>(piece % period)] += seconds;
  }
  /// All steps of a piece of so many bytes are done.
  void done(Index piece, Index bytes) {
    if (!needs(piece)) return;
    const Index place = piece % period;
    const double each = std::exchange(seconds_[static_cast<std::size_t>(place)], 0) / static_cast<double>(bytes);
    if (place == 0) fastest_ = each;
    if (place < trial) fastest_ = std::min(fastest_, each);
    if (place == trial && each < fastest_) streams_.store(!streams_.load());
  }

 private:
  std::atomic<bool>& streams_;
  std::array<double, trial + 1> seconds_{};
  double fastest_ = std::numeric_limits<double>::infinity();
};

}  // namespace partita
