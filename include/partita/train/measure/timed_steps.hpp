#pragma once

#include "partita/base/clock.hpp"
#include "partita/train/measure/layer_times.hpp"

#include <memory>

namespace partita {

/// How long training steps took: those that were not disturbed (see undisturbed()).
struct StepTimes {
  double median = 0;  ///< seconds, of the slowest rank in each step
  double spread = 0;  ///< distance of the quartiles over the median
  int steps = 0;      ///< that count
  int disturbed = 0;  ///< that do not
  MemoryPeak memory;  ///< of the rank that held most
};

/// Trains on one batch that is made once and lies in memory, as often as it is asked to. Every member function is
/// collective: every rank of `world` calls it.
class StepTimer {
 public:
  /// `world` has as many ranks as the strategy.
  /// @pre `world` outlives the timer.
  StepTimer(const Model& model, const Strategy& strategy, const Workload& workload, const MeasureOptions& options,
            Communicator& world);
  StepTimer(StepTimer&&) noexcept;
  ~StepTimer();
  /// For about `budget` seconds, 5 steps or more after two that are not counted: of each step the slowest rank's seconds, and what was lost
  /// on the rank that lost most; between nodes, where ranks sleep as they wait, nothing.
  std::vector<Timing> run(double budget);
  /// The peak of the rank that holds most.
  MemoryPeak memory() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// Returns the times of one such run. Collective: every rank of `world` calls it.
StepTimes time_steps(const Model& model, const Strategy& strategy, const Workload& workload,
                     const MeasureOptions& options, double budget, Communicator& world);

}  // namespace partita
