#pragma once

#include "partita/strategies/cost/estimate.hpp"

namespace partita {

/// Where `strategy` asks for a number of stages, the same with their boundaries: the cut into groups of consecutive layers with which the
/// schedule takes least, simulated with the layers' times, transfers, gradient sums and updates; of equal ones that which sends least. A
/// stage of several groups so counts with all of them. All cuts are looked at where they are few enough. Else boundaries move, from the
/// cut whose slowest group takes least (dynamic programming over layers and groups, Narayanan et al. 2019, with memory), as long as that
/// gains, from several starts: never slower than that cut where no limit binds, and the best one in 98 of 100 small cases. `limit` is what a
/// rank may hold (Plan::peak), 0 for any. The search counts weights, their gradients and state, and the activations of as many microbatches
/// as the schedule has under way of each group; where what is found holds more, it aims lower: within a few percent of the least that any
/// cut holds it may find none. The same on every rank. Throws Error if the model has fewer layers than groups, and if nothing that was
/// looked at fits the limit.
Strategy place_stages(const Model& model, const Strategy& strategy, const Workload& workload, const Machine& machine,
                      const KernelTimes& times, Index limit = 0);

/// The same; if no cut that was found fits, the one that passes the limit least, so that it can be said what is missing.
Strategy place_stages_nearest(const Model& model, const Strategy& strategy, const Workload& workload,
                              const Machine& machine, const KernelTimes& times, Index limit);

}  // namespace partita
