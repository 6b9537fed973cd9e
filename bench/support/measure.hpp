#pragma once

// Functions for all benchmarks: pin ranks to cores, compare runs in turns, print one JSON object per line.

#include "src/system/clock.hpp"

#include <mpi.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace partita::bench {

/// Pins the calling process to one core: number `rank` modulo the number of cores that it may use.
void pin(int rank);

/// Times `repeat` calls in a row after a barrier. Returns, divided by `repeat`, the seconds of the slowest rank and the
/// lost seconds of the rank that lost most. Collective: every rank of `comm` calls it.
Timing time_once(MPI_Comm comm, const std::function<void()>& run, int repeat);

// On a virtual machine the host moves cores. While two cores share no cache, one of them needs two to seven times as
// long to read what the other wrote; such a state lasts for seconds or minutes. Times are therefore compared only
// within one state. The time of a sum of 64 KiB over the ranks identifies the state. If ranks share cores, or if there
// is only one rank, there is only one state. All ranks must be on one node.

/// The medians of runs of ours and theirs in turns. Disturbed runs are left out (see undisturbed()).
struct Comparison {
  double seconds = 0;    ///< median of ours
  double spread = 0;     ///< distance between the quartiles of ours, divided by the median
  double ratio = 0;      ///< median of the fastest of theirs / median of ours: above 1, ours is faster
  double sum = 0;        ///< seconds of a sum of 64 KiB in the state in which they ran; 0 if there is only one state
  std::size_t best = 0;  ///< index of the fastest of theirs
};
/// Runs all functions in turns until one state has had at least 5 rounds and `budget` seconds. Throws
/// std::runtime_error if no state lasts that long. Collective: every rank of `comm` calls it.
Comparison compare(MPI_Comm comm, const std::function<void()>& ours, const std::vector<std::function<void()>>& theirs,
                   double budget);
/// Compares with a single function.
inline Comparison compare(MPI_Comm comm, const std::function<void()>& ours, const std::function<void()>& theirs,
                          double budget = 1) {
  return compare(comm, ours, std::vector{theirs}, budget);
}

/// The cores left the state for good.
struct CoresMoved : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs long measurements in one state only: the most frequent state at the start. All calls are collective: every rank
/// of the communicator makes them.
class SteadyCores {
 public:
  /// Times sums of 64 KiB for `seconds` seconds to find the most frequent state.
  explicit SteadyCores(MPI_Comm comm, double seconds = 15);
  /// Waits for the state and calls `what`. Repeats that if the state has changed in the meantime. Throws CoresMoved on
  /// all ranks after five minutes without success.
  void run(const std::function<void()>& what);
  /// Seconds of a sum of 64 KiB in this state.
  double sum() const { return usual_; }
  /// Number of runs that were repeated so far.
  int thrown() const { return thrown_; }

 private:
  bool steady() const;

  MPI_Comm comm_;
  double usual_;
  int thrown_ = 0;
};

/// Prints one line on rank 0: {"subject": ..., "case": ..., "ranks": ..., "seconds": ..., "spread": ..., "ratio": ...,
/// "against": ..., "sum_us": microseconds of a sum of 64 KiB in this state; left out if there is only one state}
void print(MPI_Comm comm, const std::string& subject, const std::string& what, const Comparison& comparison,
           const std::string& against);

/// e.g. "64KiB".
std::string size_name(long bytes);

}  // namespace partita::bench
