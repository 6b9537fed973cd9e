#pragma once

#include "partita/base/traffic.hpp"
#include "partita/strategies/plan/plan.hpp"

#include <string>
#include <vector>

namespace partita {

/// When a layer communicates: in a pass of a microbatch, between stages, or once a step.
enum class Pass : std::uint8_t { forward, backward_data, backward_filter, stages, update };

/// What a layer communicates for.
enum class Purpose : std::uint8_t {
  input,       ///< an input's redistribution to the layout that the layer needs, and its gradient's back
  output,      ///< the output's redistribution to the layout in which it is left, and its gradient's back
  halo_x,      ///< halos of inputs, before forward
  halo_dy,     ///< halos of the output's gradient, before backward-data
  halo_dx,     ///< parts of the input's gradient that belong to neighbors, after backward-data
  product,     ///< panels and sums of a distributed product
  statistics,  ///< batch statistics and losses, in the middle of the layer's work
  stages,      ///< transfers from one stage to another
  sum,         ///< sums of weight gradients
  replicas,    ///< sums of gradients and running statistics over both replicas
  update,      ///< norms, and weights that a sharded optimizer gathers
};

/// One communication of one layer, as one rank sees it.
struct PlannedTraffic {
  std::string role;  ///< the label that `explain` prints and the executor counts under, e.g. "halo x", "dw"
  Verb verb = Verb::none;
  AxisSet axes = 0;  ///< of a collective; 0 for one over all ranks or both replicas
  Traffic traffic;
  Pass pass = Pass::forward;
  Purpose purpose = Purpose::input;
  int below = 0, above = 0;  ///< exchanges: the farthest peer is at most this many ranks below, or above
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
