#pragma once

#include <cstddef>
#include <vector>

namespace partita {

/// Seconds of a clock that never goes back, since a moment of its own: only differences mean anything.
double now();

/// How long something took, and how long of that the core did something else: other programs, or the guests with which a
/// virtual machine shares its host.
struct Timing {
  double seconds = 0;
  double lost = 0;  ///< seconds
};

/// Times what the calling thread does, which must not sleep: sleep counts as lost. What other threads of the process lose is not seen.
class Stopwatch {
 public:
  Stopwatch();
  Timing time() const;

 private:
  double used_, start_;  // used_: seconds that the thread had a core for
};

/// The numbers of the timings that count, in their order: those that lost 1 % or less. If these are less than a quarter of all, the quarter
/// that lost least. If even of that quarter some lost more than a fifth, all: then ranks share cores, or sleep. At least one of one or more.
std::vector<std::size_t> undisturbed(const std::vector<Timing>& timings);
/// Their seconds.
std::vector<double> undisturbed_seconds(const std::vector<Timing>& timings);

}  // namespace partita
