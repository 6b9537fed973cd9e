#pragma once

#include "partita/strategies/plan/plan.hpp"

namespace partita {

/// Binds a model to a strategy and a workload: chooses the layouts of every layer and plans all redistributions, halos, products, sums
/// and the schedule. Pure: needs neither ranks nor a device, and searches nothing. Throws Error that names layer, dimension, axis and
/// the rule's line for a rule that matches nothing, for an axis or a dimension that does not exist, and for a layout in which a layer
/// cannot run; also if the strategy has open stage boundaries (Strategy::stages), which place_stages() closes.
Plan bind(const Model& model, const Strategy& strategy, const Workload& workload);

/// Returns `strategy` with the weight layouts that `plan` chose written out as rules. Plans for other workloads (a smaller last batch, an
/// evaluation) would choose by their own costs; with these rules they find the weights where `plan` has them.
Strategy pin_weight_layouts(Strategy strategy, const Plan& plan);

}  // namespace partita
