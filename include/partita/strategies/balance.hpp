#pragma once

#include "partita/strategies/cost_model.hpp"

namespace partita {

/// Where `strategy` asks for a number of stages, the same with their boundaries: the cut into groups of consecutive layers whose
/// slowest group takes the least time for a microbatch, forward and backward, with what it sends and receives where the
/// transport computes meanwhile nothing; of equal ones that which sends least. Dynamic programming over layers and groups
/// (Narayanan et al. 2019, with memory). `limit` is what a stage's ranks may hold, 0 for any, in equal parts for each of its
/// groups: weights, their gradients and state, and the activations of as many microbatches as the schedule has under way there.
/// Throws Error if the model has fewer layers than groups, and if nothing fits the limit.
Strategy balanced(const Model& model, const Strategy& strategy, const Workload& workload, const Machine& machine,
                  const KernelTimes& times, Index limit = 0);

/// The strategy with the stages that `layers` were bound for written out.
Strategy with_boundaries(const Strategy& strategy, const std::vector<LayerPlan>& layers);

}  // namespace partita
