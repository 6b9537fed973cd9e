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

/// For ranks on a virtual machine, whose cores its host moves about: while they share no cache, what one wrote takes the other
/// two to seven times as long to read, for seconds or minutes at a time. Whatever is to be compared is measured in one of these
/// states: the nearest of those in which the cores lay for a quarter of the time at the start.
class SteadyCores {
 public:
  /// Looks at sums of 64 KiB for some seconds, where every rank has a core of its own: a lone rank has nobody to be near to,
  /// and ranks that share cores wait for them. Collective, as all of it.
  explicit SteadyCores(MPI_Comm comm, double seconds = 15);
  /// Waits for the state, runs it, and runs it again if the state was another one afterwards. Throws if that has not
  /// come about within five minutes.
  void run(const std::function<void()>& what);
  /// Seconds of the sum in this state, 0 where none is looked at, and how many runs were thrown away so far.
  double sum() const { return usual_; }
  int thrown() const { return thrown_; }
  MPI_Comm comm() const { return comm_; }

 private:
  bool steady() const;

  MPI_Comm comm_;
  double usual_ = 0;
  int thrown_ = 0;
};

/// Medians of interleaved runs of ours and of what it is held against.
struct Comparison {
  double seconds = 0;  ///< median of ours
  double spread = 0;   ///< distance of its quartiles, relative
  double ratio = 0;    ///< median of theirs / median of ours: above 1 ours is faster
};
/// Runs both in turns for about `budget` seconds, 5 rounds or more, each in the state of `cores`.
Comparison compare(SteadyCores& cores, const std::function<void()>& ours, const std::function<void()>& theirs,
                   double budget = 1);

/// Prints one line on rank 0: {"subject": ..., "case": ..., "ranks": ..., "seconds": ..., "spread": ..., "ratio": ...,
/// "against": ..., "sum_us": the microseconds of a sum of 64 KiB in the state of `cores`, where one is looked at}
void print(const SteadyCores& cores, const std::string& subject, const std::string& what, const Comparison& comparison,
           const std::string& against);

/// e.g. "64KiB".
std::string size_name(long bytes);

}  // namespace partita::bench
