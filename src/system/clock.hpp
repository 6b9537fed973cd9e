#pragma once

#include <cstddef>
#include <vector>

namespace partita {

/// Returns the seconds of a monotonic clock. Its origin is arbitrary: only differences are meaningful.
double now();

/// How long something took, and how much of that time the core was busy with something else: other programs, or other
/// virtual machines on the same host.
struct Timing {
  double seconds = 0;  ///< elapsed time
  double lost = 0;     ///< part of `seconds` in which the thread had no core
};

/// Times the calling thread. The thread must not sleep in between, since sleep counts as lost time. Time that other
/// threads of the process lose is not measured.
class Stopwatch {
 public:
  Stopwatch();
  Timing time() const;

 private:
  double used_, start_;  // used_: seconds for which the thread has had a core
};

/// Returns the indices of the timings that are worth using, in ascending order:
/// - those that lost at most 1 % of their time;
/// - if these are fewer than a quarter of all timings, the quarter that lost the smallest share;
/// - if some timings of that quarter lost more than 20 %, all timings: then the ranks share cores, or they sleep.
/// The result is empty only if `timings` is empty.
std::vector<std::size_t> undisturbed(const std::vector<Timing>& timings);
/// Returns the seconds of the `undisturbed` timings.
std::vector<double> undisturbed_seconds(const std::vector<Timing>& timings);

}  // namespace partita
