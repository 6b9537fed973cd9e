#pragma once

#include "partita/strategies/cost/estimate.hpp"

namespace partita {

/// Chooses the algorithms of products, and the layouts of the weights that they multiply by, and returns the strategy
/// with a rule for each layer whose choice makes the step faster on the machine. Without it, bind() counts words and
/// operations, and knows no machine. Only layers are examined whose input or output the strategy cuts by channels, and
/// whose algorithm it leaves open; in the model's order, and layers that are alike together. Each algorithm is bound
/// and priced with the whole step, with the weights as bind() lays them out and with those of a row-parallel product,
/// w[F C@axes] for an input x[N C@axes] (Shoeybi et al., Megatron-LM, 2019).
///
/// The result is the same on every rank. Throws Error as bind() and estimate() do.
/// @pre Stage boundaries are placed (place_stages).
Strategy choose_products(const Model& model, const Strategy& strategy, const Workload& workload, const Machine& machine,
                         const KernelTimes& times = KernelTimes());

}  // namespace partita
