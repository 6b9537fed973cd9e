#pragma once

#include "partita/comm/thread_ranks.hpp"

#include <chrono>
#include <functional>
#include <vector>

namespace partita {

/// The message about a rank that waited too long; {} is the number of seconds.
inline constexpr char waited_too_long[] =
    "has waited {} s for other ranks: one of them, its host or its network link has failed, or --timeout is too short";

/// Prints for which ranks `rank` has waited so long, and in which layer.
void print_waiting(int rank, int seconds, const std::vector<int>& missing);

/// The wait of a thread rank for other ranks.
class Patience {
 public:
  /// `rank` is the number in the world.
  Patience(int rank, const WaitLimits& limits) : rank_(rank), limits_(limits) { begin(); }
  /// A wait begins.
  void begin();
  /// Called again and again during the wait. Prints a note or throws WaitedTooLong once the time is up. `missing`
  /// returns the ranks that are waited for. Time in which the process was suspended does not count.
  void look(const std::function<std::vector<int>()>& missing);

 private:
  int rank_;
  WaitLimits limits_;
  std::chrono::steady_clock::time_point last_;
  std::chrono::nanoseconds waited_{};
  bool noted_ = false;
};

}  // namespace partita
