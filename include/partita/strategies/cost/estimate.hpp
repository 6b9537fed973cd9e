#pragma once

#include "partita/strategies/machine/kernel_times.hpp"
#include "partita/strategies/machine/machine.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "partita/strategies/schedule/simulate.hpp"

#include <string>
#include <vector>

namespace partita {

/// Seconds of one pass of one layer for one microbatch, on the slowest rank. The communication times below count only
/// what computation does not hide.
struct PassCost {
  double compute = 0;
  double halo = 0;            ///< halo exchanges
  double redistribution = 0;  ///< conversions between layouts
  double product = 0;         ///< panels and partial sums of a distributed product
  double collective = 0;      ///< collectives inside a layer: statistics, losses
  double hidden = 0;          ///< halo time that computation hides; not part of total()
  /// Seconds of computing that can hide gradient sums: total() less what the rank that communicates longest needs for
  /// that, hidden or not. Not part of total().
  double room = 0;
  int rank = 0;  ///< of a layer: the rank of the stage's grid that takes longest
  double total() const { return compute + halo + redistribution + product + collective; }
  double communication() const { return total() - compute; }
  PassCost& operator+=(const PassCost& other);
  PassCost operator*(double factor) const;
};

/// The cost of one layer.
struct LayerCost {
  PassCost forward, backward_data, backward_filter;
  /// The part of the three passes that redistributes the inputs to the layouts that the layer needs, and their
  /// gradients back.
  double inputs = 0;
  double grad_reduce = 0;  ///< seconds per step of the gradient sums that the layer completes, hidden or not
  int rank = 0;            ///< the rank of the stage's grid that takes longest for all passes together
  /// True if the kernel times were measured. Otherwise they follow from operations, bytes and the machine's rates.
  bool measured = false;
};

/// The seconds of a step by cause, on the stage with the most work.
struct CostParts {
  PassCost passes;         ///< sum over all microbatches
  double transfers = 0;    ///< between stages: the part that keeps the rank busy, and what the step waits for others
  double grad_reduce = 0;  ///< gradient sums that no computation hides
  double update = 0;       ///< weight update
  double bubble = 0;       ///< waiting for other stages, if transfers took no time
  double hidden = 0;       ///< halos and gradient sums that computation hides; not part of total()
  double total() const { return passes.total() + transfers + grad_reduce + update + bubble; }
};

/// The time of one step of a plan on a machine, in total and by cause.
struct StepCost {
  double seconds = 0;
  CostParts parts;
  int stage = 0;  ///< the stage with the most work
};

/// The time of a step together with the times of its layers and transfers, its traffic and its memory.
struct Cost : StepCost {
  std::vector<LayerCost> layers;
  std::vector<LayerCost> second_layers;  ///< of the second replica (Chimera), if there is one
  /// Seconds of the outputs of one microbatch of the first replica between stages, by edge of graph_of(plan).
  std::vector<double> transfers;
  Simulation simulation;   ///< the schedule, simulated with these times
  double bubble_rate = 0;  ///< Simulation::bubble_rate() if transfers took no time
  Traffic traffic;         ///< per step, of the rank that sends the most bytes, as Traffic counts them
  double sent = 0;         ///< bytes per step that leave the rank that sends the most (sent_bytes)
  MemoryPeak memory;       ///< of the rank that needs the most memory
  int memory_rank = 0;     ///< world rank with this memory peak; the lowest if several have it
  double samples_per_second = 0;
};

/// Predicts the cost of a plan without running it. The work of each layer is priced on the representatives of its grid;
/// the slowest one counts:
///
///     compute    measured (KernelTimes), or kernel launch + max(operations / rate, bytes / bandwidth)
///     exchange   measured if the level has measurements, or by level latency + bytes / bandwidth;
///                each panel of a product has its latency
///     collective measured if the level has measurements, or the formula of the cheapest algorithm
///     halo       computation hides the share that the level's `overlap` gives;
///                the backward pass hides gradient sums in the same way
///     schedule   simulate(), which runs the same action lists as the executor
///
/// Throws Error if the plan has more ranks than the last level of the machine holds. To price one plan on many
/// machines, keep its CostFormula; this function builds one and uses it once.
Cost estimate(const Plan& plan, const Machine& machine, const KernelTimes& times = {});

}  // namespace partita
