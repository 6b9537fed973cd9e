#pragma once

#include "partita/strategies/plan/traffic.hpp"
#include "strategies/cost/build_terms.hpp"

namespace partita {

/// Prices pieces of a plan, one at a time: makes terms of them, and of these seconds. Whoever asks for all of a plan takes
/// CostFormula.
class PieceCost {
 public:
  /// As CostTermBuilder's.
  PieceCost(const Plan& plan, const Machine& machine, const KernelTimes& times, bool split, const Grid* whole = nullptr)
      : plan_(plan), machine_(machine), times_(times), split_(split), whole_(whole) {}

  /// One microbatch of the larger size, or of the smaller one.
  LayerCost layer(int layer, bool of_remainder) const {
    CostTermBuilder compiler = this->compiler();
    const auto ranks = compiler.layer(layer, of_remainder);
    return MachineRates(compiler.terms(), machine_).layer(ranks);
  }
  GradReduceCost sums(int layer) const {
    CostTermBuilder compiler = this->compiler();
    const auto ranks = compiler.sums(layer);
    return MachineRates(compiler.terms(), machine_).sums(ranks);
  }
  /// Of the weights of a group.
  double update(int group) const {
    CostTermBuilder compiler = this->compiler();
    return MachineRates(compiler.terms(), machine_).update(compiler.update(group));
  }
  /// Of an item of traffic, hidden or not, on a rank of the grid.
  double seconds(const PlannedTraffic& item, const Grid& grid, int rank) const {
    CostTermBuilder compiler = this->compiler();
    const Movement movement = compiler.movement(item, grid, rank);
    return MachineRates(compiler.terms(), machine_).seconds(movement);
  }
  /// The share of these that goes on while a rank computes.
  double overlap(const PlannedTraffic& item, const Grid& grid, int rank) const {
    CostTermBuilder compiler = this->compiler();
    const Movement movement = compiler.movement(item, grid, rank);
    return MachineRates(compiler.terms(), machine_).way(movement).overlap;
  }

 private:
  CostTermBuilder compiler() const { return {plan_, machine_, times_, split_, whole_}; }

  const Plan& plan_;
  const Machine& machine_;
  const KernelTimes& times_;
  bool split_;
  const Grid* whole_;
};

}  // namespace partita
