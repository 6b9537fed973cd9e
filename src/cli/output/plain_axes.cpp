#include "src/cli/output/plain_axes.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>

namespace partita::cli {

namespace {

/// One word of a layout, such as "H@(y,x)": a dimension and the axes that shard it, major axis first.
struct Word {
  std::string dim;
  std::vector<std::string> axes;

  std::string print() const {
    if (axes.empty()) return dim;
    return axes.size() == 1 ? fmt::format("{}@{}", dim, axes[0]) : fmt::format("{}@({})", dim, fmt::join(axes, ","));
  }
};

std::vector<Word> words_of(const std::string& layout) {
  std::vector<Word> words;
  std::istringstream in(layout);
  for (std::string text; in >> text;) {
    const auto at = text.find('@');
    Word word{text.substr(0, at), {}};
    std::istringstream axes(at == std::string::npos ? "" : text.substr(at + 1));
    for (std::string axis; std::getline(axes, axis, ',');) {
      std::erase_if(axis, [](char c) { return c == '(' || c == ')'; });
      word.axes.push_back(axis);
    }
    words.push_back(std::move(word));
  }
  return words;
}

/// The grid and the rules of a strategy, split into parts that can be renamed.
class Axes {
 public:
  explicit Axes(const Strategy& strategy) : strategy_(strategy) {
    for (int axis = 0; axis < strategy.grid().axes(); ++axis)
      grid_.emplace_back(strategy.grid().name(axis), strategy.grid().extent(axis));
    for (const auto& [match, rule, place, value] : strategy.rules())
      rules_.push_back(
          {words_of(rule.output.value_or("")), words_of(rule.input.value_or("")), words_of(rule.weights.value_or(""))});
  }

  /// Joins neighboring axes that every rule uses together.
  void join() {
    for (std::size_t i = 0; i + 1 < grid_.size();) {
      const std::string first = grid_[i].first, second = grid_[i + 1].first;
      if (!together(first, second)) {
        ++i;
        continue;
      }
      grid_[i].second *= grid_[i + 1].second;
      grid_.erase(grid_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      each_word([&](Word& word) { std::erase(word.axes, second); });
    }
  }

  /// Names each axis after the dimension that it shards.
  void name() {
    std::set<std::string> taken;
    for (auto& [axis, extent] : grid_) {
      std::string wanted = name_of(axis);
      for (int number = 2; !taken.insert(wanted).second; ++number) wanted = fmt::format("{}{}", name_of(axis), number);
      each_word([&, old = axis](Word& word) { std::replace(word.axes.begin(), word.axes.end(), old, "=" + wanted); });
      axis = wanted;
    }
    each_word([](Word& word) {  // remove the mark '=', which distinguishes new names from old ones
      for (auto& axis : word.axes)
        if (axis.starts_with('=')) axis.erase(0, 1);
    });
  }

  Strategy strategy() const {
    std::string grid;
    for (const auto& [axis, extent] : grid_) grid += fmt::format("{}{}={}", grid.empty() ? "" : " ", axis, extent);
    std::vector<Strategy::Rule> rules = strategy_.rules();
    const auto print = [](const std::vector<Word>& words, std::optional<std::string>& layout) {
      std::vector<std::string> texts;
      for (const auto& word : words) texts.push_back(word.print());
      if (layout) layout = fmt::format("{}", fmt::join(texts, " "));
    };
    for (std::size_t i = 0; i < rules_.size(); ++i) {
      print(rules_[i].output, rules[i].rule.output);
      print(rules_[i].input, rules[i].rule.input);
      print(rules_[i].weights, rules[i].rule.weights);
    }
    return strategy_.on(Grid::parse(grid)).with_rules(std::move(rules));
  }

 private:
  /// The layouts of a rule.
  struct Layouts {
    std::vector<Word> output, input, weights;
  };

  template <class Visit>
  void each_word(Visit&& visit) {
    for (auto& rule : rules_)
      for (auto* layout : {&rule.output, &rule.input, &rule.weights})
        for (auto& word : *layout) visit(word);
  }

  bool together(const std::string& first, const std::string& second) const {
    for (const auto& rule : rules_)
      for (const auto* layout : {&rule.output, &rule.input, &rule.weights})
        for (const auto& word : *layout) {
          const auto a = std::find(word.axes.begin(), word.axes.end(), first);
          const auto b = std::find(word.axes.begin(), word.axes.end(), second);
          if (a == word.axes.end() && b == word.axes.end()) continue;
          if (a == word.axes.end() || b == word.axes.end() || b != a + 1) return false;
        }
    return true;
  }

  std::string name_of(const std::string& axis) const {
    std::set<std::string> dims;
    for (const auto& rule : rules_)
      for (const auto& word : rule.output)
        if (std::find(word.axes.begin(), word.axes.end(), axis) != word.axes.end()) dims.insert(word.dim);
    if (dims.empty()) return axis;
    if (dims.size() > 1) return "p";
    const std::string& dim = *dims.begin();
    return dim == "N" ? "data" : dim == "C" ? "c" : dim == "D" ? "z" : dim == "W" ? "x" : dim == "L" ? "seq" : "y";
  }

  const Strategy& strategy_;
  std::vector<std::pair<std::string, int>> grid_;
  std::vector<Layouts> rules_;
};

}  // namespace

Strategy with_plain_axes(const Strategy& strategy) {
  for (const auto& stage : strategy.groups())
    if (stage.grid) return strategy;
  Axes axes(strategy);
  axes.join();
  axes.name();
  return axes.strategy();
}

}  // namespace partita::cli
