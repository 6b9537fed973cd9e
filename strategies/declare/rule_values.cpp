#include "strategies/declare/rule_values.hpp"

#include "partita/layouts/notation.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace partita {

RuleValues rule_values(const Model& model, const Strategy& strategy, const ReadKey& read) {
  RuleValues key;
  key.of_layer.resize(model.layers().size());
  for (const auto& rule : strategy.rules()) {
    const auto value = read(rule.rule);
    if (!value) continue;
    const auto at = std::find(key.values.begin(), key.values.end(), *value) - key.values.begin();
    if (static_cast<std::size_t>(at) == key.values.size()) key.values.push_back(*value);
    for (std::size_t i = 0; i < key.of_layer.size(); ++i)
      if (rule.matches(model.layers()[i].name)) key.of_layer[i] = static_cast<std::size_t>(at);
  }
  return key;
}

LayerRule merged_rule(const Strategy& strategy, const std::string& layer) {
  LayerRule merged;
  for (const auto& each : strategy.rules()) {
    if (!each.matches(layer)) continue;
    const LayerRule& later = each.rule;
    if (later.output) merged.output = later.output;
    if (later.input) merged.input = later.input;
    if (later.weights) merged.weights = later.weights;
    if (later.algorithm) merged.algorithm = later.algorithm;
    if (later.recompute) merged.recompute = later.recompute;
  }
  return merged;
}

std::vector<std::string> fitting_words(const std::string& layout, const std::function<bool(char)>& has) {
  std::vector<std::string> words;
  for (const auto& [dim, axes] : parse_notation(layout)) {
    if (axes.empty() || (dim.text.size() == 1 && !has(dim.text[0]))) continue;
    std::vector<std::string> names;
    for (const auto& axis : axes) names.push_back(axis.text);
    words.push_back(names.size() == 1 ? fmt::format("{}@{}", dim.text, names[0])
                                      : fmt::format("{}@({})", dim.text, fmt::join(names, ",")));
  }
  return words;
}

}  // namespace partita
