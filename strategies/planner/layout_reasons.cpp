#include "strategies/planner/layout_reasons.hpp"

#include "strategies/planner/layout_alternatives.hpp"

#include <algorithm>

namespace partita {

namespace {

std::string print(const std::string& layout) { return layout.empty() ? "replicated" : layout; }

}  // namespace

std::vector<LayoutReason> layout_reasons(const Model& model, const Strategy& strategy, const Workload& workload,
                                         const Machine& machine, const KernelTimes& times) {
  if (strategy.ranks() == 1) return {};
  const LayoutAlternatives found = layout_alternatives({model, workload, machine, times}, strategy);
  std::vector<LayoutReason> reasons;
  for (std::size_t group = 0; group < found.groups.size(); ++group) {
    const LayoutGroup& mine = found.groups[group];
    LayoutReason reason{mine.derived ? "derived" : print(mine.layout), {}, ""};
    for (const std::size_t i : mine.layers) reason.layers.push_back(model.layers()[i].name);
    const auto second =
        std::find_if(found.all.begin(), found.all.end(), [&](const auto& each) { return each.group == group; });
    if (second != found.all.end()) {
      reason.second = print(second->layout);
      reason.cost = second->cost;
      reason.with = second->strategy;
    }
    reasons.push_back(std::move(reason));
  }
  return reasons;
}

}  // namespace partita
