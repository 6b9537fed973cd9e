#pragma once

#include "strategies/cost/cost_terms.hpp"

namespace partita {

/// Turns terms into seconds with the constants of a machine.
/// @pre The terms and the machine outlive it.
class MachineRates {
 public:
  MachineRates(const CostTerms& terms, const Machine& machine);

  /// A route with the constants of the machine: seconds, bytes per second, and the share that can overlap.
  struct Way {
    double latency = 0, bandwidth = 0, overlap = 0;
    const Curve* measured = nullptr;  ///< measurements of the verb for this number of ranks, or null
  };
  const Way& way(const Movement& movement) const { return ways_[static_cast<std::size_t>(movement.route)]; }
  double seconds(const Movement& movement) const;
  /// Returns the cheapest algorithm of a collective.
  const CollectiveOption& cheapest(const Movement& movement) const;
  /// Returns the share of the machine's arithmetic rate that a kernel reaches.
  double share(const KernelTerm& kernel) const;
  /// Returns the seconds of the forward work at the machine's rates.
  double seconds(const KernelTerm& kernel) const;

  LayerCost layer(const RankTerms& rank) const;
  // These functions return the cost of the slowest rank.
  LayerCost layer(const std::vector<RankTerms>& ranks) const;
  GradReduceCost grad_reduce(const std::vector<GradReduceTerms>& ranks) const;
  double update(const UpdateTerms& terms) const;
  StageTransfer transfer(const std::vector<Movement>& ranks) const;

 private:
  const CostTerms& terms_;
  const Machine& machine_;
  double gamma_;                         // seconds to add a byte
  std::array<const Curve*, 3> kernels_;  // by KernelKind; null if the machine has no curve
  std::vector<Way> ways_;                // by route
};

}  // namespace partita
