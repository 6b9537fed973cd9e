#include "strategies/planner/layer_classes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

namespace partita {

LayerClasses::LayerClasses(const Model& whole) : model(whole.name()) {
  std::map<std::string, int> numbers;
  const auto shapes = whole.shapes(1);
  std::vector<bool> trains;  // by layer: whether it or a layer before it has trained weights
  std::vector<std::vector<int>> readers(whole.layers().size());
  for (int i = 0; i < static_cast<int>(whole.layers().size()); ++i)
    for (const int input : whole.layers()[i].inputs) readers[input].push_back(i);
  std::vector<bool> is_table(whole.layers().size(), false);
  for (const Layer& layer : whole.layers())
    if (layer.table >= 0) is_table[layer.table] = true;
  // The activation behind a layer that computes it.
  const auto taken = [&](int i) -> std::optional<Activation> {
    if (readers[i].size() != 1) return std::nullopt;
    const auto f = whole.layers()[readers[i].front()].op->activation();
    return f && whole.layers()[i].op->activation_fusion(*f) > ActivationFusion::where_fused ? f : std::nullopt;
  };
  // Whether the one reader of a dropout computes it.
  const auto dropped = [&](int i) {
    return whole.layers()[i].op->dropout_rate() > 0 && readers[i].size() == 1 &&
           whole.layers()[readers[i].front()].op->drops_input();
  };
  for (int i = 0; i < static_cast<int>(whole.layers().size()); ++i) {
    const Layer& layer = whole.layers()[i];
    const auto inputs = whole.inputs_of(i, shapes);
    const auto weights = layer.op->weights(inputs);
    trains.push_back(std::any_of(weights.begin(), weights.end(), [](const WeightSpec& w) { return w.trained; }));
    std::string text = std::to_string(layer.like);
    if (is_table[i]) text += " of " + layer.name;  // another layer names it
    if (const auto f = taken(i)) text += fmt::format(" then {}", name(f->kind));
    if (layer.op->activation() && taken(layer.inputs.front()))
      text += fmt::format(" after {}", whole.layers()[layer.inputs.front()].op->kind());
    if (dropped(i)) text += " dropped";
    if (layer.op->adds_gradient() && readers[layer.inputs.front()].back() > i) text += " adds dx";
    std::vector<Value> producers;
    for (std::size_t k = 0; k < layer.inputs.size(); ++k) {
      const auto producer = static_cast<std::size_t>(layer.inputs[k]);
      text += fmt::format(" {}{}{}", inputs[k].print(), trains[producer] ? " dx" : "",
                          layer.op->drops_input() && dropped(layer.inputs[k]) ? " dropped" : "");
      producers.push_back(model.value(model.layers()[of_layer[producer]].name));
      trains.back() = trains.back() || trains[producer];
    }
    const auto [found, fresh] = numbers.try_emplace(std::move(text), static_cast<int>(numbers.size()));
    of_layer.push_back(found->second);
    if (fresh) {
      model.layer(layer.name, layer.op, producers);
      occurrences.push_back(0);
    }
    ++occurrences[found->second];
  }
}

}  // namespace partita
