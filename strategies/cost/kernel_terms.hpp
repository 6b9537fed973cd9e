#pragma once

#include "partita/strategies/machine/kernel_times.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "strategies/cost/cost_terms.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace partita {

/// What the kernels of a layer have in common on all ranks.
struct LayerKernels {
  const LayerPlan& layer;
  KernelTerm term;                    // what no rank changes: the kind, the calls and whether a pass recomputes
  std::optional<double> whole_flops;  // of a convolution on all ranks together, once a rank has needed it
};

/// Builds the terms of the kernels that a rank runs in the operations of a layer (layer_ops.hpp) for one microbatch.
class KernelTerms {
 public:
  /// `actions` are those of a microbatch.
  /// @pre All arguments outlive it.
  KernelTerms(const Plan& plan, const KernelTimes& times, std::span<const Action::Kind> actions);

  /// Returns the kernels of a layer.
  LayerKernels of(const LayerPlan& layer) const;
  /// Returns the kernels of a layer on a rank of its grid.
  KernelTerm on_rank(LayerKernels& layer, int rank) const;
  /// Returns the measured times of a group's weight update of `elements` elements, if there are any.
  std::optional<LayerTimes> update(Index elements, int group) const;

 private:
  std::optional<LayerTimes> measured(const std::string& work, int group) const;
  KernelTerm of_times(const LayerPlan& layer, const LayerTimes& times) const;

  const Plan& plan_;
  const KernelTimes& times_;
  std::span<const Action::Kind> actions_;
  std::vector<Loop> loops_;  // by stage: the loop in which its layers are timed; empty without times
};

}  // namespace partita
