#pragma once

// What all benchmarks share: ranks on cores of their own, interleaved runs, one JSON object a line.

#include <mpi.h>

#include <functional>
#include <string>
#include <vector>

namespace partita::bench {

/// One thread a rank, on core rank % cores of those that the process may use.
void pin(int rank);

/// Seconds of a run, the slowest rank's; after a barrier. `repeat` calls in a row, divided.
double time_once(MPI_Comm comm, const std::function<void()>& run, int repeat);

/// Medians of interleaved runs of ours and of what it is held against.
struct Comparison {
  double seconds = 0;  ///< median of ours
  double spread = 0;   ///< distance of its quartiles, relative
  double ratio = 0;    ///< median of theirs / median of ours: above 1 ours is faster
};
/// Runs both in turns for about `budget` seconds, 5 rounds or more, after one round that is not counted.
Comparison compare(MPI_Comm comm, const std::function<void()>& ours, const std::function<void()>& theirs,
                   double budget = 1);

/// Prints one line on rank 0: {"subject": ..., "case": ..., "ranks": ..., "seconds": ..., "spread": ..., "ratio": ...,
/// "against": ...}
void print(MPI_Comm comm, const std::string& subject, const std::string& what, const Comparison& comparison,
           const std::string& against);

/// e.g. "64KiB".
std::string size_name(long bytes);

}  // namespace partita::bench
