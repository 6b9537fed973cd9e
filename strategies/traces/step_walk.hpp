#pragma once

#include "partita/strategies/machine/kernel_times.hpp"
#include "partita/strategies/machine/machine.hpp"
#include "partita/strategies/plan/traffic.hpp"
#include "strategies/cost/collective_rounds.hpp"

#include <span>
#include <string_view>

namespace partita {

/// Names what a rank does in a step.
struct StepLabel {
  std::string_view layer;  ///< "" for what a group of layers does together
  std::string_view what;   ///< an operation, e.g. "forward", or the role of a communication, e.g. "halo x"
  int microbatch = 0;
};

/// What one rank computes in an operation.
struct RankWork {
  double seconds = 0;
  double flops = 0;  ///< operations of its kernels; 0 for an update
  double bytes = 0;  ///< that its kernels read and write
};

/// Takes what one rank does in a step, in order (walk_step).
class StepSink {
 public:
  virtual ~StepSink() = default;

  /// The rank computes.
  virtual void compute(const StepLabel& label, const RankWork& work) = 0;
  /// The rank sends and receives messages inside its stage, and waits for all of them.
  virtual void exchange(const StepLabel& label, std::span<const SizedMessage> sent,
                        std::span<const SizedMessage> received) = 0;
  /// The rank runs a collective, item.traffic.messages times. `ranks` are those of the world that take part, ascending.
  virtual void collective(const StepLabel& label, const PlannedTraffic& item, std::span<const int> ranks) = 0;
  /// The rank starts to send (or else to receive) a message between stages, and goes on. Such messages count from 0.
  virtual void start_transfer(const StepLabel& label, bool sends, const SizedMessage& message) = 0;
  /// The rank waits for message number `transfer` of these.
  virtual void wait_for_transfer(int transfer) = 0;
};

/// Goes through the operations of one rank in a training step (StepProgram), and tells the sink what the rank does:
/// computation by its price, exchanges and transfers between stages message by message, and collectives. A rank waits
/// for its messages before it computes; only transfers between stages go on meanwhile. Gradient sums run where the
/// executor waits for them.
void walk_step(const Plan& plan, const Machine& machine, const KernelTimes& times, int rank, StepSink& sink);

/// Returns the seconds of a step in which communication takes no time: the simulated schedule, in which each layer
/// takes what its slowest rank computes. If that is the same rank in all layers of a stage, and microbatches are equal,
/// a replay of what walk_step() tells takes as long. Communication must end when it has begun on all its ranks.
double seconds_of_computing(const Plan& plan, const Machine& machine, const KernelTimes& times);

/// Returns the operations (flops) of the kernels of one rank in a step, as they count in the price.
double rank_flops(const Plan& plan, int rank);

}  // namespace partita
