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

/// Whether the pieces that ranks write for each other, into a ring of slots, are streamed past the caches. Where cores share a
/// cache they should not be: two ranks sum 1 MiB in 60 us, streamed in 95. Where they do not, a line that is written is called
/// back from the other core's cache: 700 us against 85. Which of both holds nobody tells a process, and virtual machines move.
/// So of every 503 pieces (a prime: any piece of operations that are alike) two are written the other way, into the same slot:
/// the first leaves the slot's lines where that way leaves them, the second is timed, and if it took less time for each byte than
/// the fastest of the four before it, the way is changed.
template <Index ring>
class StreamingChoice {
 public:
  static constexpr Index period = 503, timed = 5;
  /// The number to begin with: the first pieces find pages that nobody has touched.
  static constexpr Index first = period - ring;

  /// `shared` is what those who write read.
  explicit StreamingChoice(std::atomic<bool>& shared) : shared_(shared) {}

  static bool streams(const std::atomic<bool>& shared, Index piece) {
    const Index place = piece % period;
    return has_streaming_stores && shared.load(std::memory_order_relaxed) != (place == trial - ring || place == trial);
  }
  /// True if the decision needs the time of the piece.
  static bool needs(Index piece) {
    const Index place = piece % period;
    return has_streaming_stores && place > trial - timed && place <= trial;
  }
  /// Where a list of the last times keeps that of such a piece.
  static std::size_t index(Index piece) { return static_cast<std::size_t>(piece % period - (trial - timed + 1)); }
  /// A step of such a piece took so long.
  void add(Index piece, double seconds) { seconds_[index(piece)] += seconds; }
  /// All steps of such a piece are done; they moved so many bytes.
  void finish(Index piece, Index bytes) {
    const double each = std::exchange(seconds_[index(piece)], 0) / static_cast<double>(bytes);
    const auto i = index(piece);
    if (i == 0) fastest_ = each;
    if (i + 1 < timed) fastest_ = std::min(fastest_, each);
    if (i + 1 == timed && each < fastest_) shared_.store(!shared_.load());
  }

 private:
  static constexpr Index trial = ring + timed;

  std::atomic<bool>& shared_;
  std::array<double, timed> seconds_{};
  double fastest_ = std::numeric_limits<double>::infinity();
};

}  // namespace partita
