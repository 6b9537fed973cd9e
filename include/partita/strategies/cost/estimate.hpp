#pragma once

#include "partita/strategies/machine/kernel_times.hpp"
#include "partita/strategies/machine/machine.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "partita/strategies/schedule/simulate.hpp"

#include <memory>
#include <string>
#include <vector>

namespace partita {

/// Seconds of one pass of one layer for one microbatch, on the rank that takes longest.
struct PassCost {
  double compute = 0;
  double halo = 0;            ///< of what is not hidden behind computing, as all that follow
  double redistribution = 0;  ///< between layouts
  double product = 0;         ///< panels and partial sums of a distributed product
  double collective = 0;      ///< in the middle of a layer: statistics, losses
  double hidden = 0;          ///< of halos, behind computing: in no sum
  double total() const { return compute + halo + redistribution + product + collective; }
  double communication() const { return total() - compute; }
  PassCost& operator+=(const PassCost& other);
  PassCost operator*(double factor) const;
};

/// One layer's price.
struct LayerCost {
  PassCost forward, backward_data, backward_filter;
  double inputs = 0;  ///< of all three, what takes inputs to the layouts in which they are needed, and gradients back
  double sums = 0;    ///< seconds of the gradient sums that the layer completes, once a step, hidden or not
  int rank = 0;       ///< of the stage's grid, on which it takes longest
  /// The times of its kernels are; else they are the machine's rates times operations and bytes.
  bool measured = false;
};

/// Where the seconds of a step go, on the stage that works longest.
struct CostParts {
  PassCost passes;       ///< of all microbatches
  double transfers = 0;  ///< of what goes to and comes from other stages, as far as the rank copies it itself
  double sums = 0;       ///< of gradients, as far as nothing hides them
  double update = 0;     ///< of the weights
  double bubble = 0;     ///< waiting for other stages
  double total() const { return passes.total() + transfers + sums + update + bubble; }
};

/// How long a step of a plan takes on a machine, and what of it.
struct StepCost {
  double seconds = 0;
  CostParts parts;
  int stage = 0;  ///< that works longest
};

/// The same with all that it comes from.
struct Cost : StepCost {
  std::vector<LayerCost> layers;
  std::vector<double> transfers;  ///< seconds of one microbatch between stages, by edge of graph_of(plan)
  Simulation simulation;          ///< of the schedule with these times
  Traffic traffic;                ///< of the rank that sends most, a step
  MemoryPeak memory;              ///< of the rank that holds most
  int memory_rank = 0;            ///< that rank, of the world; of several the first
  double samples_per_second = 0;
};

/// Ranks of a grid that have its largest and smallest blocks and inner ones: the first, a middle and the last along each axis.
std::vector<int> representatives(const Grid& grid);

/// Prices a plan, without running it. Each layer's work is priced on the representatives of its grid, and the longest counts:
///
///     compute    measured (KernelTimes), or a kernel's launch + max(operations / rate, bytes / bandwidth)
///     exchange   messages x latency + bytes / bandwidth of the level of the farthest peer; measured where the level has it
///     collective measured where the level has it, or the cheapest algorithm's closed form (collective_cost)
///     halo       hidden behind computing as far as the level's `overlap` says; so are gradients' sums behind the backward
///     schedule   simulate(), which runs the same lists as the executor
///
/// Throws Error for a plan with more ranks than a machine with a limited last level holds. Whoever prices one plan on many
/// machines keeps its CostFormula, which this makes and asks once.
Cost estimate(const Plan& plan, const Machine& machine, const KernelTimes& times = {});

/// What a plan costs as a formula of a machine's constants: of each distinct layer, on each rank that no other one always
/// outlasts, how many operations and bytes its kernels have, and how many messages, rounds and bytes its communication has on
/// which level. Made once, it prices the plan on machines of the same levels with any latencies, bandwidths, rates, shares of
/// overlap and curves, a hundred times as fast as `estimate` does.
class CostFormula {
 public:
  /// Of `machine` it needs how many ranks a unit of each level holds, alone. The plan must outlive it.
  /// Throws Error as `estimate` does.
  CostFormula(const Plan& plan, const Machine& machine, const KernelTimes& times = {});
  CostFormula(Plan&& plan, const Machine& machine, const KernelTimes& times = {}) = delete;
  CostFormula(CostFormula&&) noexcept;
  CostFormula& operator=(CostFormula&&) noexcept;
  ~CostFormula();

  /// The price of a step on a machine. Throws Error for one with other levels, or other ranks in a unit of one.
  StepCost step(const Machine& machine) const;
  /// The same with all that it comes from, as `estimate` returns it. Memory and traffic, which no constant of a machine
  /// changes, are looked for once.
  Cost cost(const Machine& machine) const;

 private:
  class Parts;
  std::unique_ptr<const Parts> parts_;
};

/// How a layer's price comes about: every number with its formula and inputs, one a line.
std::string explain_cost(const Plan& plan, const Machine& machine, const KernelTimes& times, int layer);

}  // namespace partita
