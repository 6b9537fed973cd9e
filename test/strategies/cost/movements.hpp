#pragma once

#include "strategies/cost/cost_terms.hpp"

#include "test/strategies/cost/priced.hpp"

#include <vector>

namespace partita::test {

inline constexpr int node = 0, network = 1;

/// Nodes of 4 ranks.
inline Machine two_levels(double links = 4, double fan_out = 1) {
  Machine machine = clustered_machine(4, links);
  machine.levels[network].fan_out = {fan_out, ""};
  return machine;
}

/// Adds a movement of messages over one kind of links.
inline Movement exchange(CostTerms& terms, const Link& link, double messages, double bytes) {
  const auto use = static_cast<int>(terms.uses.size()), option = static_cast<int>(terms.options.size());
  terms.uses.push_back({terms.number(link), messages, bytes});
  CollectiveOption all;
  all.first = use;
  all.end = use + 1;
  terms.options.push_back(all);
  terms.routes.push_back({Verb::exchange, link.level, 2, 1});
  return {static_cast<int>(terms.routes.size()) - 1, messages, bytes, option, option + 1};
}

/// One way to run a collective, over one kind of links.
struct Way {
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  CollectiveCost cost;
};

/// Adds a movement of one call of a collective.
inline Movement collective(CostTerms& terms, const Route& route, double sharing, double bytes,
                           const std::vector<Way>& ways) {
  const auto first = static_cast<int>(terms.options.size());
  for (const auto& [algorithm, cost] : ways) {
    const auto use = static_cast<int>(terms.uses.size());
    terms.uses.push_back({terms.number({route.level, sharing}), cost.rounds, cost.bytes});
    terms.options.push_back({algorithm, LevelUse::flat, use, use + 1, cost.combined});
  }
  terms.routes.push_back(route);
  return {static_cast<int>(terms.routes.size()) - 1, 1, bytes, first, static_cast<int>(terms.options.size())};
}

}  // namespace partita::test
