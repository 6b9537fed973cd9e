#pragma once

#include "partita/base/traffic.hpp"
#include "partita/strategies/plan/plan.hpp"

#include <string>
#include <vector>

namespace partita {

/// When a layer communicates: in which pass of a microbatch, on its way between stages, or once a step.
enum class Pass : std::uint8_t { forward, backward_data, backward_filter, stages, update };

/// What a layer communicates for.
enum class Purpose : std::uint8_t {
  input,       ///< an input's way to the layout that the layer needs, and its gradient's back
  output,      ///< what it computed, to the layout in which it is left; its gradient likewise
  halo,        ///< of inputs, before they are needed
  product,     ///< panels, and sums of a distributed product
  statistics,  ///< in the middle of its work: batch statistics, losses
  stages,      ///< from one stage to another
  sum,         ///< gradients of weights
  replicas,    ///< these and running statistics of both replicas
  update,      ///< norms, and weights that several ranks update
};

/// One communication of one layer, as one rank will see it.
struct PlannedTraffic {
  std::string role;  ///< "halo x", "y", "statistics forward", "loss", "dy", "halo dy", "dx", "dw weight", ...
  Verb verb = Verb::none;
  AxisSet axes = 0;  ///< of a collective; 0 for one over all ranks or both replicas
  Traffic traffic;
  Pass pass = Pass::forward;
  Purpose purpose = Purpose::input;
  int below = 0, above = 0;  ///< of an exchange: how far its peers' numbers lie below the rank's, and above, at most
};

/// What `rank` (of the world) sends for one layer in a step, in the order of execution. Items without any message are left out.
std::vector<PlannedTraffic> layer_traffic(const Plan& plan, int layer, int rank);
/// The sum of layer_traffic() over all layers.
Traffic rank_traffic(const Plan& plan, int rank);
/// The part of layer_traffic() that one microbatch of the larger size (or, `of_remainder`, of the smaller one) causes in the first
/// replica.
std::vector<PlannedTraffic> microbatch_traffic(const Plan& plan, int layer, int rank, bool of_remainder = false);
/// What `rank` (of the world) sends for one microbatch of `layer`, one of the plan's layers of either size, inside its stage.
std::vector<PlannedTraffic> traffic_in_stage(const Plan& plan, const LayerPlan& layer, int rank);
/// The part of layer_traffic() that comes once a step: sums of gradients, norms, gathered weights, a loss for all stages.
std::vector<PlannedTraffic> step_traffic(const Plan& plan, int layer, int rank);

}  // namespace partita
