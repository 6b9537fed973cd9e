#pragma once

#include "partita/strategies/plan/traffic.hpp"
#include "strategies/cost/build_terms.hpp"
#include "strategies/cost/evaluate_terms.hpp"

namespace partita {

/// Prices single pieces of a plan: builds the terms of a piece and converts them to seconds. To price a whole plan, use
/// CostFormula. All times are in seconds.
class PieceCost {
 public:
  /// Takes the arguments of CostTermBuilder.
  /// @pre All arguments outlive it.
  PieceCost(const Plan& plan, const Machine& machine, const KernelTimes& times, bool split, const Grid* whole = nullptr)
      : plan_(plan), machine_(machine), times_(times), split_(split), whole_(whole) {}

  /// Returns the cost of one microbatch, of the larger size or of the remainder.
  LayerCost layer(int layer, bool of_remainder) const {
    CostTermBuilder builder = this->builder();
    const auto ranks = builder.layer(layer, of_remainder);
    return MachineRates(builder.terms(), machine_).layer(ranks);
  }
  GradReduceCost sums(int layer) const {
    CostTermBuilder builder = this->builder();
    const auto ranks = builder.sums(layer);
    return MachineRates(builder.terms(), machine_).grad_reduce(ranks);
  }
  /// Returns the time of the weight update of a group.
  double update(int group) const {
    CostTermBuilder builder = this->builder();
    return MachineRates(builder.terms(), machine_).update(builder.update(group));
  }
  /// Returns the time of an item of traffic on a rank of the grid, hidden or not.
  double seconds(const PlannedTraffic& item, const Grid& grid, int rank) const {
    CostTermBuilder builder = this->builder();
    const Movement movement = builder.movement(item, grid, rank);
    return MachineRates(builder.terms(), machine_).seconds(movement).total();
  }
  /// Returns the share of this time that can overlap with computation.
  double overlap(const PlannedTraffic& item, const Grid& grid, int rank) const {
    CostTermBuilder builder = this->builder();
    const Movement movement = builder.movement(item, grid, rank);
    return MachineRates(builder.terms(), machine_).seconds(movement).overlap();
  }

 private:
  CostTermBuilder builder() const { return {plan_, machine_, times_, split_, whole_}; }

  const Plan& plan_;
  const Machine& machine_;
  const KernelTimes& times_;
  bool split_;
  const Grid* whole_;
};

}  // namespace partita
