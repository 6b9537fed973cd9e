#include "strategies/planner/strategy_kind.hpp"

#include "partita/base/shape.hpp"
#include "strategies/declare/rule_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>

namespace partita {

std::string StrategyKind::print() const {
  std::string text;
  for (const auto& [cut, name] :
       {std::pair(stages, "stages"), {samples, "samples"}, {space, "space"}, {channels, "channels"}})
    if (cut) text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  return text.empty() ? "nothing" : text;
}

StrategyKind kind_of(const Model& model, const Strategy& strategy) {
  StrategyKind kind;
  const auto grids = strategy.grids();
  kind.stages = grids.size() > 1;
  const auto cuts = [&](const Placement::Name& axis) {
    return std::any_of(grids.begin(), grids.end(), [&](const Grid& grid) {
      const int found = grid.find(axis.text);
      return found >= 0 && grid.extent(found) > 1;
    });
  };
  const RuleValues outputs = rule_values(model, strategy, [](const LayerRule& rule) { return rule.output; });
  std::set<std::pair<std::size_t, std::string>> seen;  // values of tensors with these dimensions
  for (std::size_t i = 0; i < outputs.of_layer.size(); ++i) {
    const auto value = outputs.of_layer[i];
    if (!value || !seen.emplace(*value, model.shapes()[i].names()).second) continue;
    const auto has = [&](char dim) { return model.shapes()[i].has(dim); };
    for (const auto& [dim, axes] : fitting_words(outputs.values[*value], has)) {
      if (std::none_of(axes.begin(), axes.end(), cuts)) continue;
      if (dim.text == "N") kind.samples = true;
      if (dim.text == "C" || dim.text == "sum") kind.channels = true;  // a pending sum is over parts of the channels
      if (is_spatial(dim.text[0])) kind.space = true;
    }
  }
  return kind;
}

std::vector<std::size_t> fastest_of_kinds(const std::vector<KindTime>& list, int most) {
  const auto faster = [&](std::size_t a, std::size_t b) { return list[a].seconds < list[b].seconds; };
  std::vector<std::size_t> by_time(list.size()), chosen, others;
  std::iota(by_time.begin(), by_time.end(), std::size_t{0});
  std::stable_sort(by_time.begin(), by_time.end(), faster);
  for (const std::size_t each : by_time) {
    const bool known = std::any_of(chosen.begin(), chosen.end(),
                                   [&](std::size_t other) { return list[other].kind == list[each].kind; });
    const bool slow = list[each].seconds > of_interest * list[by_time.front()].seconds;
    (known || slow ? others : chosen).push_back(each);
  }
  chosen.insert(chosen.end(), others.begin(), others.end());
  chosen.resize(std::min(chosen.size(), static_cast<std::size_t>(most)));
  std::stable_sort(chosen.begin(), chosen.end(), faster);
  return chosen;
}

}  // namespace partita
