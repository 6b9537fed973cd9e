#pragma once

#include "partita/strategies/plan/plan.hpp"

namespace partita {

/// Binds a model to a strategy and a workload. Chooses the layouts of every layer, and plans all redistributions,
/// halos, products, sums and the schedule. It is a pure function: it needs neither ranks nor a device, and it searches
/// nothing.
///
/// Throws Error if a rule matches nothing, if an axis or a dimension does not exist, or if a layer cannot run in a
/// layout. The error names the layer, the dimension, the axis and the rule's line. Also throws Error if the strategy
/// has open stage boundaries (Strategy::stages); place_stages() closes them.
Plan bind(const Model& model, const Strategy& strategy, const Workload& workload);

/// Returns `strategy` with extra rules that fix the weight layouts chosen by `plan`. Without them, a plan for another
/// workload (a smaller last batch, an evaluation) would choose weight layouts by its own costs. With them, it uses the
/// weights where `plan` has placed them.
Strategy pin_weight_layouts(Strategy strategy, const Plan& plan);

}  // namespace partita
