#include "strategies/plan/check_names.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <map>

namespace partita {

void check_tensor_names(const Plan& plan) {
  const auto nested = [](const LayerPlan& layer) {
    const auto has_part = [](const WeightSpec& weight) { return weight.name.find('/') != std::string::npos; };
    return !layer->weights.empty() && (layer.name.find('/') != std::string::npos ||
                                       std::any_of(layer->weights.begin(), layer->weights.end(), has_part));
  };
  if (std::none_of(plan.layers.begin(), plan.layers.end(), nested)) return;
  std::map<std::string, const LayerPlan*> owners;
  for (const auto& layer : plan.layers)
    for (const auto& weight : layer->weights)
      for (const std::string_view state : {"", ".velocity", ".square", ".mean"})
        if (const auto [at, fresh] = owners.emplace(fmt::format("{}/{}{}", layer.name, weight.name, state), &layer);
            !fresh)
          fail("layers '{}' and '{}' both have a weight '{}' in a checkpoint; rename one", at->second->name, layer.name,
               at->first);
  for (const auto& [name, layer] : owners)
    for (std::size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1))
      if (const auto other = owners.find(name.substr(0, slash)); other != owners.end())
        fail(
            "layer '{}': its weight would be '{}' in a checkpoint, below '{}', which is a weight of layer '{}'; rename "
            "one",
            layer->name, name, other->first, other->second->name);
}

}  // namespace partita
