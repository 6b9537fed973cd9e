#pragma once

#include "partita/strategies/plan/plan.hpp"

#include <concepts>
#include <type_traits>
#include <utility>

namespace partita {

/// Binds a model to a strategy and a workload. Chooses the layouts of every layer, and plans all redistributions,
/// halos, products, sums and the schedule. It is a pure function: it needs neither ranks nor a device, and it searches
/// nothing.
///
/// Throws Error if a rule matches nothing, if an axis or a dimension does not exist, or if a layer cannot run in a
/// layout. The error names the layer, the dimension, the axis and the rule's line. Also throws Error if the strategy
/// has open stage boundaries (Strategy::stages); place_stages() closes them.
Plan bind(const Model& model, const Strategy& strategy, const Workload& workload);

/// Takes arguments that are not const, too. Without it the call of a program with `using namespace std` would mean
/// std::bind, which matches such arguments better.
template <class M, class S, class W>
requires std::same_as<std::remove_cvref_t<M>, Model> && std::same_as<std::remove_cvref_t<S>, Strategy> &&
    std::same_as<std::remove_cvref_t<W>, Workload>
        Plan bind(M&& model, S&& strategy, W&& workload) {
  return bind(std::as_const(model), std::as_const(strategy), std::as_const(workload));
}

/// Returns `strategy` with extra rules that fix the weight layouts chosen by `plan`. Without them, a plan for another
/// workload (a smaller last batch, an evaluation) would choose weight layouts by its own costs. With them, it uses the
/// weights where `plan` has placed them.
Strategy pin_weight_layouts(Strategy strategy, const Plan& plan);

}  // namespace partita
