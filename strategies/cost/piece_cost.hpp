#pragma once

#include "partita/strategies/plan/traffic.hpp"
#include "strategies/cost/build_terms.hpp"
#include "strategies/cost/evaluate_terms.hpp"

namespace partita {

/// Prices single pieces of a plan: builds the terms of a piece, keeps them for pieces that have the same, and converts
/// them to seconds. To price a whole plan, use CostFormula. All times are in seconds. One thread uses it.
class PieceCost {
 public:
  /// Takes the arguments of CostTermBuilder.
  /// @pre All arguments outlive it.
  PieceCost(const Plan& plan, const Machine& machine, const KernelTimes& times, bool split, const Grid* whole = nullptr,
            Examined examined = Examined::representatives)
      : machine_(machine), builder_(plan, machine, times, split, whole, examined) {}

  /// Returns the cost of one microbatch of a replica, of the larger size or of the remainder.
  LayerCost layer(int layer, bool of_remainder, int replica = 0) const {
    const auto ranks = builder_.layer(layer, of_remainder, replica);
    return MachineRates(builder_.terms(), machine_).layer(ranks);
  }
  GradReduceCost sums(int layer) const {
    const auto ranks = builder_.sums(layer);
    return MachineRates(builder_.terms(), machine_).grad_reduce(ranks);
  }
  /// Returns the time of the weight update of a group.
  double update(int group) const { return MachineRates(builder_.terms(), machine_).update(builder_.update(group)); }
  /// Returns the time of an item of traffic on a rank of the grid, hidden or not.
  double seconds(const PlannedTraffic& item, const Grid& grid, int rank) const {
    const Movement movement = builder_.movement(item, grid, rank);
    return MachineRates(builder_.terms(), machine_).seconds(movement).all;
  }
  /// Returns the share of this time that can overlap with computation.
  double overlap(const PlannedTraffic& item, const Grid& grid, int rank) const {
    const Movement movement = builder_.movement(item, grid, rank);
    return MachineRates(builder_.terms(), machine_).seconds(movement).overlap();
  }

 private:
  const Machine& machine_;
  mutable CostTermBuilder builder_;
};

}  // namespace partita
