#include "partita/strategies/planner/short_rules.hpp"

#include "strategies/declare/rule_values.hpp"
#include "strategies/planner/name_cover.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>

namespace partita {

namespace {

constexpr std::size_t most_values = 64;

/// Shortens the rules of one key after the other.
class ShortRules {
 public:
  ShortRules(const Model& model, const Strategy& strategy) : model_(model), strategy_(strategy) {}

  /// Returns nothing if some key has too many values.
  std::optional<std::vector<Strategy::Rule>> run() {
    if (!add_outputs()) return std::nullopt;
    const bool all =
        add([](const LayerRule& rule) { return rule.input; },
            [](LayerRule& rule, const std::string& text) { rule.input = text; }) &&
        add([](const LayerRule& rule) { return rule.weights; },
            [](LayerRule& rule, const std::string& text) { rule.weights = text; }) &&
        add([](const LayerRule& rule) { return rule.algorithm ? std::optional(rule.algorithm->text()) : std::nullopt; },
            [](LayerRule& rule, const std::string& text) { rule.algorithm = AlgorithmName(text); }) &&
        add(
            [](const LayerRule& rule) {
              return rule.recompute ? std::optional(fmt::to_string(*rule.recompute)) : std::nullopt;
            },
            [](LayerRule& rule, const std::string& text) { rule.recompute = text == "true"; });
    return all ? std::optional(std::move(rules_)) : std::nullopt;
  }

 private:
  using Write = std::function<void(LayerRule&, const std::string&)>;

  bool has(std::size_t layer, char dim) const { return model_.shapes()[layer].has(dim); }

  bool add_outputs() {
    const RuleValues key = rule_values(model_, strategy_, [](const LayerRule& rule) { return rule.output; });
    if (key.values.size() > most_values) return false;
    std::vector<NamedChoice> choices;
    for (std::size_t i = 0; i < key.of_layer.size(); ++i) {
      const auto meaning = [&](std::size_t value) {
        auto words = fitting_words(key.values[value], [&](char dim) { return has(i, dim); });
        std::sort(words.begin(), words.end());
        return words;
      };
      NamedChoice choice{model_.layers()[i].name, 0};
      for (std::size_t v = 0; key.of_layer[i] && v < key.values.size(); ++v)
        if (meaning(v) == meaning(*key.of_layer[i])) choice.accepts |= std::uint64_t{1} << v;
      choices.push_back(std::move(choice));
    }
    for (const auto& [match, value] : cover_names(choices)) {
      Strategy::Rule rule{match, {}, ""};
      // A rule must not name a dimension that none of its layers has.
      const auto words = fitting_words(key.values[static_cast<std::size_t>(value)], [&](char dim) {
        for (std::size_t i = 0; i < choices.size(); ++i)
          if (rule.matches(choices[i].name) && has(i, dim)) return true;
        return false;
      });
      rule.rule.output = fmt::format("{}", fmt::join(words, " "));
      rules_.push_back(std::move(rule));
    }
    return true;
  }

  /// Adds the rules of a key whose values have the same meaning for all layers.
  bool add(const ReadKey& read, const Write& write) {
    const RuleValues key = rule_values(model_, strategy_, read);
    if (key.values.size() > most_values) return false;
    if (key.values.empty()) return true;
    std::vector<NamedChoice> choices;
    for (std::size_t i = 0; i < key.of_layer.size(); ++i)
      choices.push_back({model_.layers()[i].name, key.of_layer[i] ? std::uint64_t{1} << *key.of_layer[i] : 0});
    auto from = rules_.begin();  // rules of one key keep their order
    for (const auto& [match, value] : cover_names(choices)) {
      auto at = std::find_if(from, rules_.end(), [&](const Strategy::Rule& rule) { return rule.match == match; });
      if (at == rules_.end()) at = rules_.insert(at, {match, {}, ""});
      write(at->rule, key.values[static_cast<std::size_t>(value)]);
      from = at + 1;
    }
    return true;
  }

  const Model& model_;
  const Strategy& strategy_;
  std::vector<Strategy::Rule> rules_;
};

}  // namespace

Strategy with_short_rules(const Model& model, const Strategy& strategy) {
  const auto rules = ShortRules(model, strategy).run();
  if (!rules || rules->size() >= strategy.rules().size()) return strategy;
  return strategy.with_rules(*rules);
}

}  // namespace partita
