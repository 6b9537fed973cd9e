#include "strategies/planner/layout_alternatives.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "strategies/declare/rule_values.hpp"
#include "strategies/planner/layer_classes.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

namespace partita {

namespace {

/// Longer axes stay where they are: to bind and price thousands of blocks of one sample takes long, and is in vain.
constexpr int longest_moved = 64;

/// Returns the groups of layers, in the order of their first layers.
class Groups {
 public:
  Groups(const Model& model, const Strategy& strategy)
      : model_(model), outputs_(rule_values(model, strategy, [](const LayerRule& rule) { return rule.output; })) {
    for (std::size_t i = 0; i < model.layers().size(); ++i) add(i);
  }
  std::vector<LayoutGroup> take() && { return std::move(groups_); }

 private:
  void add(std::size_t layer) {
    const auto value = outputs_.of_layer[layer];
    const std::string layout = value ? of_value(*value) : "";
    const auto mine = unordered(parse_notation(layout));
    const auto found = std::find_if(groups_.begin(), groups_.end(), [&](const LayoutGroup& group) {
      return group.derived == !value && unordered(parse_notation(group.layout)) == mine;
    });
    if (found != groups_.end())
      found->layers.push_back(layer);
    else
      groups_.push_back({layout, !value, {layer}});
  }

  /// Returns a value without the dimensions that none of its layers has.
  std::string of_value(std::size_t value) const {
    return print_notation(fitting_words(outputs_.values[value], [&](char dim) {
      for (std::size_t i = 0; i < outputs_.of_layer.size(); ++i)
        if (outputs_.of_layer[i] == value && model_.shapes()[i].has(dim)) return true;
      return false;
    }));
  }

  const Model& model_;
  RuleValues outputs_;
  std::vector<LayoutGroup> groups_;
};

/// Makes the strategies to price.
class Variants {
 public:
  Variants(const Model& model, const Strategy& strategy)
      : model_(model), strategy_(strategy), groups_(Groups(model, strategy).take()) {}

  const std::vector<LayoutGroup>& groups() const { return groups_; }

  /// Returns the layouts to try for a group.
  std::set<std::string> layouts(const LayoutGroup& group) const {
    std::set<std::string> all = others(group);
    for (int axis = 0; axis < strategy_.grid().axes(); ++axis) {
      if (strategy_.grid().extent(axis) == 1 || strategy_.grid().extent(axis) > longest_moved) continue;
      const std::string& name = strategy_.grid().name(axis);
      std::vector<Placement> rest = parse_notation(group.layout);
      for (Placement& word : rest) std::erase_if(word.axes, [&](const auto& each) { return each.text == name; });
      std::erase_if(rest, [](const Placement& word) { return word.axes.empty(); });
      all.insert(print_notation(rest));
      for (const char dim : std::string_view("NCDHWL"))
        if (has(group, dim)) all.insert(print_notation(sharded(rest, dim, name)));
    }
    erase_own(group, all);
    return all;
  }

  /// Returns the layouts of other groups.
  std::set<std::string> others(const LayoutGroup& group) const {
    std::set<std::string> all;
    for (const LayoutGroup& other : groups_) all.insert(fitting(group, other.layout));
    erase_own(group, all);
    return all;
  }

  /// Returns the strategy in which the group has another layout. What its rules say of the group's inputs, weights and
  /// algorithms is left open.
  Strategy with(const LayoutGroup& group, const std::string& layout) const {
    std::vector<Strategy::Rule> rules;
    std::set<std::size_t> others;  // layers outside of the group whose rules lose keys
    for (Strategy::Rule rule : strategy_.rules()) {
      const bool in_group =
          std::any_of(group.layers.begin(), group.layers.end(), [&](std::size_t i) { return rule.matches(name(i)); });
      if (in_group && (rule.rule.input || rule.rule.weights || rule.rule.algorithm)) {
        rule.rule.input = rule.rule.weights = std::nullopt;
        rule.rule.algorithm = std::nullopt;
        for (std::size_t i = 0; i < model_.layers().size(); ++i)
          if (rule.matches(name(i)) && !contains(group, i)) others.insert(i);
      }
      rules.push_back(std::move(rule));
    }
    for (const std::size_t i : others) {
      const LayerRule kept = strategy_.rule_of(name(i));
      rules.push_back({name(i), {.input = kept.input, .weights = kept.weights, .algorithm = kept.algorithm}, ""});
    }
    for (const std::size_t i : group.layers)
      rules.push_back(
          {name(i),
           {.output = print_notation(fitting_words(layout, [&](char dim) { return model_.shapes()[i].has(dim); }))},
           ""});
    return strategy_.with_rules(std::move(rules));
  }

 private:
  const std::string& name(std::size_t layer) const { return model_.layers()[layer].name; }
  static bool contains(const LayoutGroup& group, std::size_t layer) {
    return std::binary_search(group.layers.begin(), group.layers.end(), layer);
  }
  bool has(const LayoutGroup& group, char dim) const {
    return std::any_of(group.layers.begin(), group.layers.end(),
                       [&](std::size_t i) { return model_.shapes()[i].has(dim); });
  }
  static void erase_own(const LayoutGroup& group, std::set<std::string>& layouts) {
    const auto mine = unordered(parse_notation(group.layout));
    if (!group.derived)
      std::erase_if(layouts, [&](const std::string& layout) { return unordered(parse_notation(layout)) == mine; });
  }
  std::string fitting(const LayoutGroup& group, const std::string& layout) const {
    return print_notation(fitting_words(layout, [&](char dim) { return has(group, dim); }));
  }

  static std::vector<Placement> sharded(std::vector<Placement> words, char dim, const std::string& axis) {
    auto at = std::find_if(words.begin(), words.end(), [&](const Placement& word) { return word.dim.text[0] == dim; });
    if (at == words.end()) at = words.insert(at, Placement{{std::string(1, dim), 0}, {}});
    at->axes.push_back({axis, 0});
    return words;
  }

  const Model& model_;
  const Strategy& strategy_;
  std::vector<LayoutGroup> groups_;
};

bool faster(const LayoutAlternative& a, const LayoutAlternative& b) { return a.cost.seconds < b.cost.seconds; }

}  // namespace

LayoutAlternatives layout_alternatives(const SearchContext& context, const Strategy& strategy) {
  const Model& model = context.model;
  const double mine = context.pricer->step(context.bind(strategy)).seconds;
  const Variants variants(model, strategy);
  LayoutAlternatives found{variants.groups(), {}};
  for (std::size_t group = 0; group < found.groups.size(); ++group) {
    std::vector<LayoutAlternative> all;  // with the least that they could cost
    for (const std::string& layout : variants.layouts(found.groups[group])) {
      Strategy variant = variants.with(found.groups[group], layout);
      try {
        const Plan plan = context.bind(variant);
        all.push_back({group, layout, std::move(variant), context.pricer->step_at_least(plan)});
      } catch (const Error&) {  // some layer cannot run in this layout
        continue;
      }
    }
    std::stable_sort(all.begin(), all.end(), faster);
    double best = std::numeric_limits<double>::infinity();
    for (LayoutAlternative& each : all) {
      if (each.cost.seconds >= best && each.cost.seconds >= mine) break;
      each.cost = context.pricer->step(context.bind(each.strategy));
      best = std::min(best, each.cost.seconds);
      found.all.push_back(std::move(each));
    }
  }
  std::stable_sort(found.all.begin(), found.all.end(), faster);
  return found;
}

void move_classes(const SearchContext& context, Strategy strategy,
                  const std::function<bool(const Strategy&, const Plan&)>& take) {
  const LayerClasses classes(context.model);
  for (int number = 0; number < static_cast<int>(classes.occurrences.size()) && !context.time_is_up(); ++number) {
    const Variants variants(context.model, strategy);
    for (LayoutGroup group : variants.groups()) {  // layers of a class may have several layouts
      std::erase_if(group.layers, [&](std::size_t layer) { return classes.of_layer[layer] != number; });
      if (group.layers.empty()) continue;
      for (const std::string& layout : variants.others(group)) {
        Strategy variant = variants.with(group, layout);
        try {
          if (take(variant, context.bind(variant))) strategy = std::move(variant);
        } catch (const Error&) {  // some layer cannot run in this layout
        }
      }
    }
  }
}

}  // namespace partita
