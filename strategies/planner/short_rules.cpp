#include "strategies/planner/short_rules.hpp"

#include "strategies/declare/rule_values.hpp"
#include "strategies/planner/name_cover.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

namespace partita {

namespace {

constexpr std::size_t most_values = 64;

using Write = std::function<void(LayerRule&, const std::string&)>;

/// One key of a rule: its value as a text, and the layers that can have it. For others, a pattern does not count.
struct Key {
  ReadKey read;
  Write write;
  std::function<bool(std::size_t layer)> applies;
};

/// Shortens the rules of one key after the other.
class ShortRules {
 public:
  ShortRules(const Model& model, const Strategy& strategy) : model_(model), strategy_(strategy) {}

  /// Returns nothing if some key has too many values, or if a pattern names an input, weights or an algorithm.
  std::optional<std::vector<Strategy::Rule>> run() {
    bool all = add_outputs();
    for (const Key& key : keys()) all = all && add(key);
    return all ? std::optional(std::move(rules_)) : std::nullopt;
  }

 private:
  const Layer& layer(std::size_t i) const { return model_.layers()[i]; }
  bool has(std::size_t i, char dim) const { return model_.shapes()[i].has(dim); }

  bool add_outputs() {
    const RuleValues key = rule_values(model_, strategy_, [](const LayerRule& rule) { return rule.output; });
    if (key.values.size() > most_values) return false;
    std::vector<NamedChoice> choices;
    for (std::size_t i = 0; i < key.of_layer.size(); ++i) {
      const auto meaning = [&](std::size_t value) {
        std::vector<std::string> words;
        for (const Placement& word : fitting_words(key.values[value], [&](char dim) { return has(i, dim); }))
          words.push_back(print_notation({word}));
        std::sort(words.begin(), words.end());
        return words;
      };
      NamedChoice choice{layer(i).name};
      for (std::size_t v = 0; key.of_layer[i] && v < key.values.size(); ++v)
        if (meaning(v) == meaning(*key.of_layer[i])) choice.accepts |= std::uint64_t{1} << v;
      choices.push_back(std::move(choice));
    }
    for (const auto& [match, value] : cover_names(choices)) {
      Strategy::Rule rule{match, {}, ""};
      // A rule must not name a dimension that none of its layers has.
      const auto words = fitting_words(key.values[value], [&](char dim) {
        for (std::size_t i = 0; i < choices.size(); ++i)
          if (rule.matches(choices[i].name) && has(i, dim)) return true;
        return false;
      });
      rule.rule.output = print_notation(words);
      rules_.push_back(std::move(rule));
    }
    return true;
  }

  std::vector<Key> keys() const {
    const auto shapes = model_.shapes();
    std::vector<bool> weights;
    for (std::size_t i = 0; i < model_.layers().size(); ++i)
      weights.push_back(!layer(i).op->weights(model_.inputs_of(static_cast<int>(i), shapes)).empty());
    return {
        {[](const LayerRule& rule) { return rule.input; },
         [](LayerRule& rule, const std::string& text) { rule.input = text; },
         [this](std::size_t i) { return !layer(i).inputs.empty(); }},
        {[](const LayerRule& rule) { return rule.weights; },
         [](LayerRule& rule, const std::string& text) { rule.weights = text; },
         [weights](std::size_t i) { return weights[i]; }},
        {[](const LayerRule& rule) { return rule.algorithm ? std::optional(rule.algorithm->text()) : std::nullopt; },
         [](LayerRule& rule, const std::string& text) { rule.algorithm = AlgorithmName(text); },
         [this](std::size_t i) { return !layer(i).op->algorithms().empty(); }},
        {[](const LayerRule& rule) {
           return rule.recompute ? std::optional(fmt::to_string(*rule.recompute)) : std::nullopt;
         },
         [](LayerRule& rule, const std::string& text) { rule.recompute = text == "true"; },
         [this](std::size_t i) { return !layer(i).inputs.empty() && !layer(i).op->is_loss(); }}};
  }

  /// Adds the rules of a key whose values have the same meaning for all layers that can have them.
  bool add(const Key& key) {
    const RuleValues given = rule_values(model_, strategy_, key.read);
    if (given.values.size() > most_values) return false;
    if (given.values.empty()) return true;
    for (const auto& rule : strategy_.rules())  // a pattern's layout may fit some of its layers only
      if (!rule.exact() && (rule.rule.input || rule.rule.weights || rule.rule.algorithm)) return false;
    std::vector<NamedChoice> choices;
    for (std::size_t i = 0; i < given.of_layer.size(); ++i)
      choices.push_back(
          {layer(i).name, given.of_layer[i] ? std::uint64_t{1} << *given.of_layer[i] : 0, !key.applies(i)});
    auto from = rules_.begin();  // rules of one key keep their order
    for (const NameRule& each : cover_names(choices)) {
      auto at = std::find_if(from, rules_.end(), [&](const Strategy::Rule& rule) { return rule.match == each.match; });
      if (at == rules_.end()) at = rules_.insert(at, {each.match, {}, ""});
      key.write(at->rule, given.values[each.value]);
      from = at + 1;
    }
    return true;
  }

  const Model& model_;
  const Strategy& strategy_;
  std::vector<Strategy::Rule> rules_;
};

/// Returns true if some stage's grid lacks an axis of another stage's.
bool grids_differ(const Strategy& strategy) {
  const auto grids = strategy.grids();
  return std::any_of(grids.begin(), grids.end(),
                     [&](const Grid& grid) { return grid.names() != grids.front().names(); });
}

}  // namespace

Strategy with_short_rules(const Model& model, const Strategy& strategy) {
  if (grids_differ(strategy)) return strategy;
  const auto rules = ShortRules(model, strategy).run();
  if (!rules || rules->size() >= strategy.rules().size()) return strategy;
  return strategy.with_rules(*rules);
}

}  // namespace partita
