#include "strategies/declare/rules.hpp"

#include "layouts/notation.hpp"
#include "partita/base/error.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace partita {

bool Setting::same(const Setting& other) const {
  if (rule == other.rule) return true;
  return rule != nullptr && other.rule != nullptr && rule->exact() && other.rule->exact() && *text == *other.text;
}

bool LayerSettings::same(const LayerSettings& other) const {
  return output.same(other.output) && input.same(other.input) && weights.same(other.weights) &&
         algorithm.same(other.algorithm);
}

namespace {

/// Returns true for the name of a dimension that some tensor has.
bool is_dim(const std::string& text) {
  constexpr std::string_view all = "NCDHWLVF";
  return text.size() == 1 && all.find(text[0]) != std::string_view::npos;
}

/// Returns a pattern's layout without the dimensions that this layer lacks and the axes that its stage's grid lacks,
/// and notes each. The rest keeps its columns, for error messages.
std::string drop_missing(const Setting& from, const Shape& shape, const Grid& grid, std::string_view key,
                         std::vector<std::string>& notes) {
  std::string text = *from.text;
  const auto words = parse_notation(text);
  const auto note = [&](const std::string& lacks) {
    notes.push_back(fmt::format("{} of \"{}\": {}", key, from.rule->match, lacks));
  };
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto& dim = words[i].dim;
    const auto& axes = words[i].axes;
    const auto end = i + 1 < words.size() ? words[i + 1].dim.column : text.size();
    const auto replace = [&](std::string by) {
      by.resize(end - dim.column, ' ');
      text.replace(dim.column, end - dim.column, by);
    };
    if (is_dim(dim.text) && !shape.has(dim.text[0])) {
      replace("");
      if (!axes.empty()) note("it has no " + dim.text);
      continue;
    }
    std::string kept;
    std::size_t there = 0;
    for (const auto& axis : axes) {
      if (grid.find(axis.text) < 0) {
        note(fmt::format("its stage's grid \"{}\" has no {}", grid.print(), axis.text));
        continue;
      }
      kept += (there++ == 0 ? "" : ",") + axis.text;
    }
    if (there == axes.size()) continue;
    if (there == 0)
      replace(is_dim(dim.text) ? dim.text : "");
    else
      replace(fmt::format("{}@({})", dim.text, kept));
  }
  return text;
}

/// Checks a pattern against the model and the grids. A dimension that none of the pattern's layers has is a mistake. So
/// is an axis that no grid has, even if the dimension before it is dropped.
class PatternCheck {
 public:
  PatternCheck(const Model& model, const std::vector<Grid>& grids, const Strategy::Rule& rule,
               const std::vector<std::size_t>& layers)
      : model_(model), grids_(grids), rule_(rule), layers_(layers) {}

  void run() const {
    const auto inputs = [&](std::size_t i) { return model_.inputs_of(static_cast<int>(i), model_.shapes()); };
    check("output", rule_.rule.output, [&](std::size_t i) { return std::vector{model_.shapes()[i]}; });
    check("input", rule_.rule.input, inputs);
    check("weights", rule_.rule.weights, [&](std::size_t i) {
      std::vector<Shape> shapes;
      for (const auto& weight : model_.layers()[i].op->weights(inputs(i))) shapes.push_back(weight.shape);
      return shapes;
    });
  }

 private:
  /// `shapes_of(i)` returns the shapes of layer i that the key applies to.
  template <class ShapesOf>
  void check(std::string_view key, const std::optional<std::string>& text, const ShapesOf& shapes_of) const {
    if (!text) return;
    const auto has = [&](std::size_t layer, char dim) {
      const auto shapes = shapes_of(layer);
      return std::any_of(shapes.begin(), shapes.end(), [&](const Shape& shape) { return shape.has(dim); });
    };
    try {
      for (const auto& [dim, axes] : parse_notation(*text)) {
        for (const auto& axis : axes) check_axis(*text, axis);
        if (axes.empty() || !is_dim(dim.text)) continue;
        const char letter = dim.text[0];
        if (std::none_of(layers_.begin(), layers_.end(), [&](std::size_t layer) { return has(layer, letter); }))
          fail_notation(*text, dim.column,
                        fmt::format("no layer that \"{}\" matches has a dimension {}", rule_.match, dim.text));
      }
    } catch (const Error& error) {
      fail("{}: {} = {}", rule_.place, key, error.what());
    }
  }

  void check_axis(const std::string& text, const Placement::Name& axis) const {
    if (std::none_of(grids_.begin(), grids_.end(), [&](const Grid& grid) { return grid.find(axis.text) >= 0; }))
      fail_notation(text, axis.column,
                    fmt::format("the grid \"{}\" has no axis '{}'{}", grids_.front().print(), axis.text,
                                did_you_mean(axis.text, grids_.front().names())));
  }

  const Model& model_;
  const std::vector<Grid>& grids_;
  const Strategy::Rule& rule_;
  const std::vector<std::size_t>& layers_;  // the layers that the rule matches
};

[[noreturn]] void fail_unmatched(const Model& model, const Strategy::Rule& rule) {
  std::vector<std::string> names;
  for (const auto& layer : model.layers()) names.push_back(layer.name);
  fail("{}: match = \"{}\" matches no layer of the model '{}'{}; it has {}", rule.place, rule.match, model.name(),
       did_you_mean(rule.match, names), quoted_list(names));
}

bool matches_left_out(const Model& model, const Strategy::Rule& rule) {
  return std::any_of(model.left_out().begin(), model.left_out().end(),
                     [&](const auto& layer) { return rule.matches(layer.second); });
}

/// Throws Error if the rule was given a value of another model.
void check_value(const Model& model, const Strategy::Rule& rule) {
  if (!rule.value || matches_left_out(model, rule)) return;
  try {
    static_cast<void>(model.find(*rule.value));
  } catch (const Error& error) {
    fail("{}: {}", rule.place, error.what());
  }
}

/// Merges a rule into the settings. It overrides earlier rules.
void merge(const Strategy::Rule& rule, LayerSettings& settings) {
  const auto set = [&](Setting& setting, const std::optional<std::string>& text) {
    if (text) setting = {&*text, &rule};
  };
  set(settings.output, rule.rule.output);
  set(settings.input, rule.rule.input);
  set(settings.weights, rule.rule.weights);
  if (rule.rule.algorithm) settings.algorithm = {&rule.rule.algorithm->text(), &rule};
  if (rule.rule.recompute) settings.recompute = &rule;
}

}  // namespace

std::vector<LayerSettings> settings_of_layers(const Model& model, const Strategy& strategy,
                                              const std::vector<Grid>& grids) {
  std::vector<LayerSettings> settings(model.layers().size());
  std::vector<std::size_t> layers;
  layers.reserve(settings.size());
  std::unordered_map<std::string_view, std::size_t> named;
  for (std::size_t i = 0; i < settings.size(); ++i) named.emplace(model.layers()[i].name, i);
  for (const auto& rule : strategy.rules()) {
    check_value(model, rule);
    layers.clear();
    if (rule.exact()) {
      if (const auto found = named.find(rule.match); found != named.end()) layers.push_back(found->second);
    } else {
      for (std::size_t i = 0; i < settings.size(); ++i)
        if (rule.matches(model.layers()[i].name)) layers.push_back(i);
    }
    if (layers.empty() && matches_left_out(model, rule)) continue;
    if (layers.empty()) fail_unmatched(model, rule);
    if (!rule.exact()) PatternCheck(model, grids, rule, layers).run();
    for (const std::size_t layer : layers) merge(rule, settings[layer]);
  }
  return settings;
}

Layout read_layout(const Setting& from, const Shape& shape, const Grid& grid, std::string_view key,
                   std::vector<std::string>& notes) {
  try {
    Layout layout =
        Layout::parse(from.rule->exact() ? *from.text : drop_missing(from, shape, grid, key, notes), shape, grid);
    if (layout.partial() != 0 && key != "output") fail("\"{}\": only an output may be a pending sum", *from.text);
    return layout;
  } catch (const Error& error) {
    fail("{}: {} = {}", from.rule->place, key, error.what());
  }
}

}  // namespace partita
