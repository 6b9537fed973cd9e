#pragma once

#include "partita/strategies/plan/plan.hpp"
#include "strategies/cost/cost_terms.hpp"
#include "strategies/cost/known_layer_costs.hpp"

#include <optional>
#include <utility>
#include <vector>

namespace partita {

/// Operations, messages and bytes of a whole plan, grouped so that each distinct piece has its terms once:
///
///     plan -> replicas -> groups of layers -> layers -> distinct layers -> terms of a microbatch
///                      -> transfers between groups
struct PlanTerms {
  /// @pre The arguments outlive the call; `known`, if it is not null, has what layers cost on the only machine.
  PlanTerms(const Plan& plan, const Machine& machine, const KernelTimes& times, KnownLayerCosts* known,
            Examined examined);

  /// A layer of a group.
  struct Layer {
    int index = 0;            ///< in the plan
    int distinct = 0;         ///< index into `distinct`
    std::optional<int> sums;  ///< index into `sums`, if the layer completes gradient sums
  };
  struct Group {
    std::vector<Layer> layers;                ///< in the order of a microbatch's last action
    std::vector<std::pair<int, int>> counts;  ///< each index into `distinct`, ascending, and how many layers have it
    UpdateTerms update;
  };
  struct Transfer {
    int from = 0, to = 0;  ///< groups
    /// Of the output, and of its gradient if that comes back, as CostTermBuilder::transfer() returns them.
    std::vector<Movement> output, gradient;
  };
  /// All layers on the stages of one replica.
  struct Replica {
    std::vector<Group> groups;
    std::vector<Transfer> transfers;
  };
  /// The terms of a distinct layer: indices into `layers`, or into `known_costs`, by the size of a microbatch.
  struct Sizes {
    int larger = 0;
    std::optional<int> smaller;
    double larger_share = 1;  ///< the share of the replica's microbatches that are of the larger size
  };

  CostTerms tables;
  std::vector<std::vector<RankTerms>> layers;
  std::vector<LayerCost> known_costs;  ///< instead of `layers`, if they are known
  std::vector<Sizes> distinct;
  std::vector<std::vector<GradReduceTerms>> sums;
  std::vector<Replica> replicas;  ///< one, or two (Chimera)
};

}  // namespace partita
