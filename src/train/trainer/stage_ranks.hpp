#pragma once

#include "partita/comm/counting.hpp"
#include "partita/comm/process_grid.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "partita/train/trainer/processor.hpp"

#include <memory>
#include <vector>

namespace partita {

/// Whom a rank sends messages to during a training, with everything counted: the ranks of the job, those of its stage,
/// and the rank that holds the other replica of its weights.
class StageRanks {
 public:
  /// Takes the communicators of `processor`. Collective: every rank of `world` calls it.
  /// @pre `world` outlives it.
  StageRanks(const Plan& plan, Communicator& world, Processor& processor);

  /// Makes the communicators that another plan of the same strategy needs. Collective: every rank of the job calls it.
  void add(const Plan& plan);
  /// Returns the bytes of memory that this rank holds for its communicators.
  Index shared_bytes() const;
  /// True if a device can capture all messages in a graph.
  bool captures() const { return between->captures() && gradients->captures(); }

  const int stage;                             ///< of this rank
  std::shared_ptr<TrafficCounter> counter;     ///< of all that this rank sends
  std::shared_ptr<Communicator> control;       ///< the job, for numbers of the CPU
  std::shared_ptr<Communicator> between;       ///< the job, for tensors
  std::shared_ptr<Communicator> gradients;     ///< the same for gradients; `between` itself on the CPU
  std::shared_ptr<ProcessGrid> grid;           ///< of the stage
  std::shared_ptr<ProcessGrid> gradient_grid;  ///< the same for gradients; `grid` itself on the CPU
  std::shared_ptr<Communicator> replica_pair;  ///< the two ranks that hold both replicas of a weight, or null
  /// By bucket of the plan: the two ranks that hold both copies of its table, or null.
  std::vector<std::shared_ptr<Communicator>> copy_pairs;
};

}  // namespace partita
