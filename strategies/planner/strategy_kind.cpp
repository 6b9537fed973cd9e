#include "partita/strategies/planner/strategy_kind.hpp"

#include "partita/layouts/notation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace partita {

std::string StrategyKind::print() const {
  std::string text;
  for (const auto& [cut, name] :
       {std::pair(stages, "stages"), {samples, "samples"}, {space, "space"}, {channels, "channels"}})
    if (cut) text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  return text.empty() ? "nothing" : text;
}

StrategyKind kind_of(const Strategy& strategy) {
  StrategyKind kind;
  const auto grids = strategy.grids();
  kind.stages = grids.size() > 1;
  const auto cuts = [&](const Placement& word) {
    return std::any_of(word.axes.begin(), word.axes.end(), [&](const Placement::Name& axis) {
      return std::any_of(grids.begin(), grids.end(), [&](const Grid& grid) {
        const int found = grid.find(axis.text);
        return found >= 0 && grid.extent(found) > 1;
      });
    });
  };
  for (const auto& rule : strategy.rules())
    for (const Placement& word : parse_notation(rule.rule.output.value_or(""))) {
      if (!cuts(word)) continue;
      const std::string& dim = word.dim.text;
      (dim == "N" ? kind.samples : dim == "C" ? kind.channels : kind.space) = true;
    }
  return kind;
}

}  // namespace partita
