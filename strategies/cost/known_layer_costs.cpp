#include "strategies/cost/known_layer_costs.hpp"

#include "strategies/cost/piece_cost.hpp"
#include "strategies/cost/symmetry.hpp"

namespace partita {

LayerCost KnownLayerCosts::of(const Plan& plan, int index, bool of_remainder, int replica, bool split,
                              Examined examined) {
  const LayerPlan& layer = plan.layers_of(replica, of_remainder)[index];
  const auto price = [&] {
    return PieceCost(plan, machine_, times_, split, nullptr, examined).layer(index, of_remainder, replica);
  };
  if (!layer.sends_to_stages.empty()) return price();  // transfers are no part of a binding
  if (count_ == most) {                                // a search seldom returns to what it left long ago
    known_.clear();
    count_ = 0;
  }
  auto& candidates = known_[cost_hash(layer)];
  for (Known& each : candidates) {
    if (each.split != split || each.ranks != plan.ranks() || !equivalent_cost(each.layer, layer)) continue;
    if (each.examined > examined) {
      each.cost = price();
      each.examined = examined;
    }
    return each.cost;
  }
  ++count_;
  return candidates.emplace_back(Known{layer, split, plan.ranks(), examined, price()}).cost;
}

}  // namespace partita
