#pragma once

#include "partita/strategies/machine/kernel_times.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "strategies/cost/cost_terms.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace partita {

/// Builds the terms of the kernels that a rank runs in the operations of a layer (layer_ops.hpp) for one microbatch.
class KernelTerms {
 public:
  /// `actions` are those of a microbatch.
  /// @pre All arguments outlive it.
  KernelTerms(const Plan& plan, const KernelTimes& times, std::span<const Action::Kind> actions);

  /// Returns the kernels of a layer on a rank of its grid. `whole` caches the operations of a convolution on all ranks
  /// together.
  KernelTerm of(const LayerPlan& layer, int rank, std::optional<double>& whole) const;
  /// Returns the measured times of some work of a group, if there are any.
  std::optional<LayerTimes> measured(const std::string& work, int group) const;

 private:
  KernelTerm of_times(const LayerPlan& layer, const LayerTimes& times) const;
  double flops(const LayerPlan& layer, const Box& y, int rank, std::optional<double>& whole) const;

  const Plan& plan_;
  const KernelTimes& times_;
  std::span<const Action::Kind> actions_;
  std::vector<Loop> loops_;  // by stage: the loop in which its layers are timed; empty without times
};

}  // namespace partita
