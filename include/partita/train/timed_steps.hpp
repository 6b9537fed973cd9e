#pragma once

#include "partita/train/layer_times.hpp"

namespace partita {

/// How long training steps took.
struct StepTimes {
  double median = 0;  ///< seconds, of the slowest rank in each step
  double spread = 0;  ///< distance of the quartiles over the median
  int steps = 0;
  MemoryPeak memory;  ///< of the rank that held most
};

/// Trains on one batch that is made once and lies in memory, for about `budget` seconds, 5 steps or more after two that are
/// not counted. Collective over `world`, which has as many ranks as the strategy.
StepTimes time_steps(const Model& model, const Strategy& strategy, const Workload& workload,
                     const MeasureOptions& options, double budget, const std::shared_ptr<Communicator>& world);

}  // namespace partita
