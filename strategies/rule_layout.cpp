#include "rule_layout.hpp"

#include "partita/base/error.hpp"
#include "partita/layouts/notation.hpp"

namespace partita {

Setting setting(const Strategy& strategy, const std::string& layer, std::optional<std::string> LayerRule::*key) {
  Setting found;
  for (const auto& rule : strategy.rules())
    if ((rule.rule.*key) && rule.matches(layer)) found = {&*(rule.rule.*key), &rule};
  return found;
}

bool is_dim(const std::string& text) {
  constexpr std::string_view all = "NCDHWLVF";
  return text.size() == 1 && all.find(text[0]) != std::string_view::npos;
}

namespace {

/// A pattern's layout without the dimensions that this layer lacks and the axes that its stage's grid lacks, which it notes.
/// What is left keeps its column.
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

}  // namespace

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
