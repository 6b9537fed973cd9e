#include "strategies/planner/layer_classes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

namespace partita {

LayerClasses::LayerClasses(const Model& whole) : model(whole.name()) {
  std::map<std::string, int> numbers;
  const auto shapes = whole.shapes(1);
  std::vector<bool> trains;  // by layer: whether it or a layer before it has trained weights
  for (int i = 0; i < static_cast<int>(whole.layers().size()); ++i) {
    const Layer& layer = whole.layers()[i];
    const auto inputs = whole.inputs_of(i, shapes);
    const auto weights = layer.op->weights(inputs);
    trains.push_back(std::any_of(weights.begin(), weights.end(), [](const WeightSpec& w) { return w.trained; }));
    std::string text = std::to_string(layer.like);
    std::vector<Value> producers;
    for (std::size_t k = 0; k < layer.inputs.size(); ++k) {
      const auto producer = static_cast<std::size_t>(layer.inputs[k]);
      text += fmt::format(" {}{}", inputs[k].print(), trains[producer] ? " dx" : "");
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
