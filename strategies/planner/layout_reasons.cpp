#include "partita/strategies/planner/layout_reasons.hpp"

#include "partita/base/error.hpp"
#include "partita/layouts/notation.hpp"
#include "partita/strategies/cost/cost_formula.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "strategies/declare/rule_values.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

namespace partita {

namespace {

/// Longer axes stay where they are: to bind and price thousands of blocks of one sample takes long, and is in vain.
constexpr int longest_moved = 64;

/// A layout as the axes of each dimension, in the notation's order.
using Words = std::vector<std::pair<std::string, std::vector<std::string>>>;

Words words_of(const std::string& layout) {
  Words words;
  for (const auto& [dim, axes] : parse_notation(layout)) {
    if (axes.empty()) continue;
    words.emplace_back(dim.text, std::vector<std::string>{});
    for (const auto& axis : axes) words.back().second.push_back(axis.text);
  }
  return words;
}

/// Returns the words without the order of a dimension's axes, which matters little.
Words unordered(Words words) {
  std::erase_if(words, [](const auto& word) { return word.second.empty(); });
  for (auto& [dim, axes] : words) std::sort(axes.begin(), axes.end());
  std::sort(words.begin(), words.end());
  return words;
}

std::string print(const Words& words) {
  std::vector<std::string> all;
  for (const auto& [dim, axes] : words)
    if (!axes.empty())
      all.push_back(axes.size() == 1 ? fmt::format("{}@{}", dim, axes[0])
                                     : fmt::format("{}@({})", dim, fmt::join(axes, ",")));
  return fmt::format("{}", fmt::join(all, " "));
}

/// Finds the second-best layout of each group of layers.
class Reasons {
 public:
  Reasons(const Model& model, const Strategy& strategy, const Workload& workload, const Machine& machine,
          const KernelTimes& times)
      : model_(model),
        strategy_(strategy),
        workload_(workload),
        machine_(machine),
        times_(times),
        outputs_(rule_values(model, strategy, [](const LayerRule& rule) { return rule.output; })) {}

  std::vector<LayoutReason> run() const {
    std::vector<LayoutReason> all;
    for (std::size_t group = 0; group < outputs_.values.size(); ++group) {
      LayoutReason reason{of_group(group, outputs_.values[group]), {}, ""};
      for (std::size_t i = 0; i < model_.layers().size(); ++i)
        if (in_group(i, group)) reason.layers.push_back(model_.layers()[i].name);
      if (reason.layers.empty()) continue;
      for (const std::string& other : others(group)) {
        Strategy strategy = with(group, other);
        const auto cost = cost_of(strategy);
        if (!cost || (!reason.second.empty() && cost->seconds >= reason.cost.seconds)) continue;
        reason.second = other.empty() ? "replicated" : other;
        reason.cost = *cost;
        reason.with = std::move(strategy);
      }
      all.push_back(std::move(reason));
    }
    return all;
  }

 private:
  bool in_group(std::size_t layer, std::size_t group) const { return outputs_.of_layer[layer] == group; }

  bool has(std::size_t layer, char dim) const { return model_.shapes()[layer].has(dim); }

  /// Returns the layout as the group's layers have it: without dimensions that none of them has.
  std::string of_group(std::size_t group, const std::string& layout) const {
    return fmt::format("{}", fmt::join(fitting_words(layout, [&](char dim) { return group_has(group, dim); }), " "));
  }
  bool group_has(std::size_t group, char dim) const {
    for (std::size_t i = 0; i < model_.layers().size(); ++i)
      if (in_group(i, group) && has(i, dim)) return true;
    return false;
  }

  /// Returns the layouts to try for a group.
  std::set<std::string> others(std::size_t group) const {
    std::set<std::string> all;
    for (const std::string& layout : outputs_.values) all.insert(of_group(group, layout));
    const Words mine = words_of(of_group(group, outputs_.values[group]));
    const Grid grid = strategy_.grids().front();
    for (int axis = 0; axis < grid.axes(); ++axis) {
      if (grid.extent(axis) == 1 || grid.extent(axis) > longest_moved) continue;
      Words rest = mine;
      for (auto& [dim, axes] : rest) std::erase(axes, grid.name(axis));
      all.insert(print(rest));
      for (const char dim : std::string_view("NCDHW")) {
        if (!group_has(group, dim)) continue;
        Words moved = rest;
        auto at = std::find_if(moved.begin(), moved.end(), [&](const auto& word) { return word.first[0] == dim; });
        if (at == moved.end()) at = moved.insert(at, {std::string(1, dim), {}});
        at->second.push_back(grid.name(axis));
        all.insert(print(moved));
      }
    }
    std::erase_if(all, [&](const std::string& layout) { return unordered(words_of(layout)) == unordered(mine); });
    return all;
  }

  /// Returns the strategy in which the group has another layout.
  Strategy with(std::size_t group, const std::string& layout) const {
    std::vector<Strategy::Rule> rules;
    for (std::size_t i = 0; i < model_.layers().size(); ++i) {
      const auto fit = [&](const std::string& text) {
        return fmt::format("{}", fmt::join(fitting_words(text, [&](char dim) { return has(i, dim); }), " "));
      };
      const std::string& name = model_.layers()[i].name;
      LayerRule rule = merged_rule(strategy_, name);
      if (in_group(i, group)) rule = {.output = layout, .recompute = rule.recompute};
      if (rule.output) rule.output = fit(*rule.output);
      rules.push_back({name, std::move(rule), ""});
    }
    return strategy_.with_rules(std::move(rules));
  }

  /// Returns nothing if the strategy cannot run.
  std::optional<StepCost> cost_of(const Strategy& strategy) const {
    try {
      const Plan plan = bind(model_, strategy, workload_);
      return CostFormula(plan, machine_, times_).step(machine_);
    } catch (const Error&) {  // some layer cannot run in this layout
      return std::nullopt;
    }
  }

  const Model& model_;
  const Strategy& strategy_;
  const Workload& workload_;
  const Machine& machine_;
  const KernelTimes& times_;
  RuleValues outputs_;
};

}  // namespace

std::vector<LayoutReason> layout_reasons(const Model& model, const Strategy& strategy, const Workload& workload,
                                         const Machine& machine, const KernelTimes& times) {
  return Reasons(model, strategy, workload, machine, times).run();
}

}  // namespace partita
