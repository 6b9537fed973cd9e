#pragma once

#include <algorithm>
#include <chrono>

namespace partita::cli {

/// Ends a training, so that it is saved before its time is over (--time-limit). What comes before the end may take as
/// long as the longest time between two steps so far, which includes validations and saves between them, and the
/// longest save.
class TimeLimit {
 public:
  using Clock = std::chrono::steady_clock;
  /// The limit counts from the start of the program.
  explicit TimeLimit(double seconds) : TimeLimit(seconds, program_start) {}
  TimeLimit(double seconds, Clock::time_point begin) : end_(begin + to_duration(seconds)) {}

  /// Call it once in each step. Returns true if the next step and a save might not end in time.
  bool ends_after_step(Clock::time_point now);
  void save_took(Clock::duration duration) { longest_save_ = std::max(longest_save_, duration); }

 private:
  static const Clock::time_point program_start;
  static Clock::duration to_duration(double seconds) {
    constexpr double most = 1e9;  // 31 years; the clock counts nanoseconds in 64 bits
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(seconds, most)));
  }
  Clock::time_point end_, last_{};
  Clock::duration longest_step_{}, longest_save_{};
};

}  // namespace partita::cli
