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
/// Copies with non-temporal stores, which bypass the caches. A fence at the end orders these stores before all later
/// ones.
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

/// Runs `step` and returns how many seconds it took.
template <class Step>
double seconds_of(Step&& step) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  step();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Decides whether ranks stream the pieces that they write for each other, i.e. write them with stores that bypass the
/// caches. Pieces go into a ring of `ring` slots.
/// If the cores share a cache, streaming is slower: two ranks sum 1 MiB in 60 us, and in 95 us with streaming. If they
/// do not share one, a written line must be fetched back from the other core's cache, and streaming is faster: 85 us
/// instead of 700 us. A process cannot find out which case holds, and a virtual machine may move to other cores. So the
/// choice is measured all the time. Of every 503 pieces, two are written the other way, into the same slot. The first
/// one brings the lines of the slot into the state in which that way leaves them. The second one is timed. If it took
/// less time per byte than the fastest of the four pieces before it, the way changes. 503 is prime, so that the trial
/// meets every piece of a repeated operation in turn.
template <Index ring>
class StreamingChoice {
 public:
  static constexpr Index period = 503, timed = 5;
  /// The number of the first piece. The first `ring` pieces come before the first full period, because they touch fresh
  /// pages.
  static constexpr Index first = period - ring;

  /// `shared` holds the choice: true if pieces are streamed. The ranks that write read it.
  explicit StreamingChoice(std::atomic<bool>& shared) : shared_(shared) {}

  /// Returns true if the piece is to be streamed.
  static bool streams(const std::atomic<bool>& shared, Index piece) {
    const Index place = piece % period;
    return has_streaming_stores && shared.load(std::memory_order_relaxed) != (place == trial - ring || place == trial);
  }
  /// Returns true if the decision needs the time of the piece.
  static bool needs(Index piece) {
    const Index place = piece % period;
    return has_streaming_stores && place > trial - timed && place <= trial;
  }
  /// The index of a piece, for which `needs` is true, among the timed pieces of its period.
  static std::size_t index(Index piece) { return static_cast<std::size_t>(piece % period - (trial - timed + 1)); }
  /// Adds the time of one step of such a piece.
  void add(Index piece, double seconds) { seconds_[index(piece)] += seconds; }
  /// Ends the timing of such a piece, which moved `bytes` bytes, and decides after the last timed piece of the period.
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
