#include "strategies/declare/rule_values.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace partita {

RuleValues rule_values(const Model& model, const Strategy& strategy, const ReadKey& read) {
  RuleValues key;
  key.of_layer.resize(model.layers().size());
  std::unordered_map<std::string_view, std::size_t> named;
  for (std::size_t i = 0; i < key.of_layer.size(); ++i) named.emplace(model.layers()[i].name, i);
  for (const auto& rule : strategy.rules()) {
    const auto value = read(rule.rule);
    if (!value) continue;
    const auto at = std::find(key.values.begin(), key.values.end(), *value) - key.values.begin();
    if (static_cast<std::size_t>(at) == key.values.size()) key.values.push_back(*value);
    if (rule.exact()) {
      if (const auto found = named.find(rule.match); found != named.end())
        key.of_layer[found->second] = static_cast<std::size_t>(at);
      continue;
    }
    for (std::size_t i = 0; i < key.of_layer.size(); ++i)
      if (rule.matches(model.layers()[i].name)) key.of_layer[i] = static_cast<std::size_t>(at);
  }
  return key;
}

std::vector<Placement> fitting_words(const std::string& layout, const std::function<bool(char)>& has) {
  std::vector<Placement> words = parse_notation(layout);
  std::erase_if(words, [&](const Placement& word) {
    return word.axes.empty() || (word.dim.text.size() == 1 && !has(word.dim.text[0]));
  });
  return words;
}

std::vector<std::pair<std::string, std::vector<std::string>>> unordered(const std::vector<Placement>& words) {
  std::vector<std::pair<std::string, std::vector<std::string>>> all;
  for (const auto& [dim, axes] : words) {
    if (axes.empty()) continue;
    all.emplace_back(dim.text, std::vector<std::string>{});
    for (const auto& axis : axes) all.back().second.push_back(axis.text);
    std::sort(all.back().second.begin(), all.back().second.end());
  }
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace partita
