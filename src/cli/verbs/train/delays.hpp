#pragma once

#include "partita/comm/communicator.hpp"
#include "src/cli/options/train_options.hpp"

#include <string>
#include <vector>

namespace partita::cli {

/// A delay on purpose, in seconds of the rank's host's steady clock.
struct TimedDelay {
  double start = 0, end = 0;
};

/// Throws Error if a delay names a rank that does not exist, or takes as long as other ranks wait at most (--timeout).
void check_delays(const TrainOptions& options, int ranks);

/// Makes one rank wait before its training steps (`train --delay`), and keeps how long it did.
class Delays {
 public:
  Delays(const TrainOptions& options, const Communicator& world) : options_(options), rank_(world.rank()) {}

  /// Waits before a step, which counts from 0 and includes those before a loaded checkpoint.
  void wait(Index step);
  /// The delays so far, in order.
  const std::vector<TimedDelay>& all() const { return all_; }
  /// Returns the seconds of each rank's delays in this run; empty without --delay. Collective: every rank calls it.
  std::vector<double> seconds_of_ranks(Communicator& world) const;

 private:
  const TrainOptions& options_;
  int rank_;
  std::vector<TimedDelay> all_;
};

/// Returns a line for the end of a training, e.g. "rank 3: 20.1 ms a step", with the ranks that were delayed longest.
std::string print_delays(const std::vector<double>& seconds, Index steps);

}  // namespace partita::cli
