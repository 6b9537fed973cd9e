#pragma once

#include "partita/strategies/cost/estimate.hpp"

#include <string>
#include <vector>

namespace partita {

/// What layers that are alike do on a machine instead of what bind() would choose.
struct ProductChoice {
  std::vector<std::string> layers;
  LayerRule rule;                ///< the layout of the weights, the algorithms, or both
  double before = 0, after = 0;  ///< seconds of a step without and with it
};

/// What choose_products() returns.
struct ChosenProducts {
  Strategy strategy;                   ///< with a rule for each layer of each choice
  std::vector<ProductChoice> choices;  ///< in the order in which they were made
};

/// Chooses the algorithms of products and of attention, and the layouts of the weights that products and convolutions
/// multiply by, where that makes the step faster on the machine. Without it, bind() counts words and operations, and
/// knows no machine. Only layers are examined whose input or output the strategy cuts by channels (of attention, by
/// places), and whose algorithm it leaves open; in the model's order, and layers that are alike together. Each way is
/// bound and priced with the whole step:
///
///     weights      w[F C] with each axis in use on F, on C or on neither: columns, rows (Shoeybi et al., Megatron-LM,
///                  2019), blocks, and those that are divided among ranks with other samples, whose gradients then need
///                  no sum. Of a convolution, only the axes that cut channels.
///     algorithms   of y, dx and dw, for the layout that bind() would choose and for the fastest of these; of attention
///
/// With a memory limit in bytes, no choice makes a rank exceed it. Given the strategy that it
/// returns, the function chooses nothing more. The result is the same on every rank. Throws Error as bind() and
/// estimate() do.
/// @pre Stage boundaries are placed (place_stages).
ChosenProducts choose_products(const Model& model, const Strategy& strategy, const Workload& workload,
                               const Machine& machine, const KernelTimes& times = KernelTimes(),
                               Index memory_limit = 0);

}  // namespace partita
