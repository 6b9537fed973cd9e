#pragma once

// What all benchmarks share: ranks on cores of their own, interleaved runs, one JSON object a line.

#include "partita/base/clock.hpp"

#include <mpi.h>

#include <functional>
#include <string>
#include <vector>

namespace partita::bench {

/// One thread a rank, on core rank % cores of those that the process may use.
void pin(int rank);

/// A run after a barrier: the slowest rank's seconds, and what was lost on the rank that lost most. `repeat` calls in a row, divided.
Timing time_once(MPI_Comm comm, const std::function<void()>& run, int repeat);

// On a virtual machine the host moves cores about: while they share no cache, what one wrote takes the other two to seven times
// as long to read, for seconds or minutes at a time. What is compared is therefore measured in one of these states, which the
// time of a sum of 64 KiB tells apart; where ranks share cores, or there is one alone, all is one state. All of one node.

/// Medians of interleaved runs of ours and of what it is held against, of each those that were not disturbed (see undisturbed()).
struct Comparison {
  double seconds = 0;    ///< median of ours
  double spread = 0;     ///< distance of its quartiles, relative
  double ratio = 0;      ///< median of the fastest of theirs / median of ours: above 1 ours is faster
  double sum = 0;        ///< seconds of a sum of 64 KiB in the state in which they ran; 0 where all is one state
  std::size_t best = 0;  ///< which of theirs is the fastest
};
/// Runs all in turns, until `budget` seconds and 5 rounds or more have been spent in one state.
Comparison compare(MPI_Comm comm, const std::function<void()>& ours, const std::vector<std::function<void()>>& theirs,
                   double budget);
/// With one to be held against.
inline Comparison compare(MPI_Comm comm, const std::function<void()>& ours, const std::function<void()>& theirs,
                          double budget = 1) {
  return compare(comm, ours, std::vector{theirs}, budget);
}

/// Measures whatever takes long in one state only: the one that was met most often at the start.
class SteadyCores {
 public:
  /// Looks at sums of 64 KiB for some seconds. Collective, as all of it.
  explicit SteadyCores(MPI_Comm comm, double seconds = 15);
  /// Waits for the state, runs it, and runs it again if the state was another one afterwards. Throws if that has not
  /// come about within five minutes.
  void run(const std::function<void()>& what);
  /// Seconds of the sum in this state, and how many runs were thrown away so far.
  double sum() const { return usual_; }
  int thrown() const { return thrown_; }

 private:
  bool steady() const;

  MPI_Comm comm_;
  double usual_;
  int thrown_ = 0;
};

/// Prints one line on rank 0: {"subject": ..., "case": ..., "ranks": ..., "seconds": ..., "spread": ..., "ratio": ...,
/// "against": ..., "sum_us": the state's microseconds of a sum of 64 KiB, where there are several states}
void print(MPI_Comm comm, const std::string& subject, const std::string& what, const Comparison& comparison,
           const std::string& against);

/// e.g. "64KiB".
std::string size_name(long bytes);

}  // namespace partita::bench
