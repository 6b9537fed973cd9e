#pragma once

#include "partita/strategies/cost/estimate.hpp"

#include <memory>

namespace partita {

class KnownLayerCosts;
struct OrderedSchedule;
enum class Examined;

/// The cost of a plan as a formula of the machine's constants. For each distinct layer it holds the operations and
/// bytes of the kernels, and the messages, rounds and bytes of the communication on each level. It leaves out ranks
/// that can never be the slowest. One formula prices the plan on every machine with the same levels, whatever the
/// latencies, bandwidths, rates, overlaps and curves. This is a hundred times as fast as estimate().
class CostFormula {
 public:
  /// Of `machine`, the formula uses only how many ranks a unit of each level holds. Throws Error as estimate() does.
  /// @pre The plan outlives the formula.
  CostFormula(const Plan& plan, const Machine& machine, const KernelTimes& times = {});
  CostFormula(Plan&& plan, const Machine& machine, const KernelTimes& times = {}) = delete;
  CostFormula(CostFormula&&) noexcept;
  CostFormula& operator=(CostFormula&&) noexcept;
  ~CostFormula();

  /// Returns the cost of a step on a machine. Throws Error if the machine has other levels, or other numbers of ranks
  /// in their units, than the machine of the constructor.
  StepCost step(const Machine& machine) const { return step(machine, machine); }
  /// The same, with transfers between stages priced on another machine, e.g. one whose links overlap with computing.
  StepCost step(const Machine& machine, const Machine& between_stages) const;
  /// Returns the cost with its details, as estimate() does, and throws as step() does. Memory and traffic do not depend
  /// on the machine's constants; the first call computes them.
  Cost cost(const Machine& machine) const;
  /// The same without Cost::memory, Cost::traffic and Cost::sent, in less time.
  Cost simulated(const Machine& machine) const;

 private:
  friend class PlanPricer;
  /// A formula for `machine` alone, which takes what layers cost from `known` and adds to it; null: for all machines.
  CostFormula(const Plan& plan, const Machine& machine, const KernelTimes& times,
              std::shared_ptr<const OrderedSchedule> schedule, KnownLayerCosts* known, Examined examined);

  class Parts;
  std::unique_ptr<const Parts> parts_;
};

}  // namespace partita
