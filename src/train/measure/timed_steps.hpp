#pragma once

#include "partita/strategies/plan/memory.hpp"
#include "src/system/clock.hpp"
#include "src/train/measure/layer_times.hpp"

#include <memory>

namespace partita {

/// Durations of training steps, from the undisturbed steps (see undisturbed()).
struct StepTimes {
  double median = 0;  ///< seconds; of each step, the slowest rank counts
  double spread = 0;  ///< interquartile range divided by the median
  int steps = 0;      ///< number of undisturbed steps
  int disturbed = 0;  ///< number of steps left out as disturbed
  MemoryPeak memory;  ///< of the rank that held most
};

/// Trains repeatedly on one batch that is made once and stays in memory. Collective: every rank of `world` calls each
/// method.
class StepTimer {
 public:
  /// `world` has as many ranks as the strategy.
  /// @pre `world` outlives the timer.
  StepTimer(const Model& model, const Strategy& strategy, const Workload& workload, const MeasureOptions& options,
            Communicator& world);
  StepTimer(StepTimer&&) noexcept;
  ~StepTimer();
  /// Trains for about `budget` seconds, at least 5 steps, after two warm-up steps that are not counted. Returns for
  /// each step the slowest rank's seconds, and the time lost to other processes on the rank that lost most. The lost
  /// time is 0 if the transport is asynchronous (between nodes), because its ranks sleep while they wait.
  std::vector<Timing> run(double budget);
  /// The peak memory of the rank that holds most, without the memory that ranks share. Collective: every rank of
  /// `world` calls it.
  MemoryPeak memory() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// Runs a StepTimer once and summarizes its steps. Collective: every rank of `world` calls it.
StepTimes time_steps(const Model& model, const Strategy& strategy, const Workload& workload,
                     const MeasureOptions& options, double budget, Communicator& world);

}  // namespace partita
