#include "layouts/notation.hpp"
#include "partita/base/error.hpp"
#include "partita/layouts/layout.hpp"

#include <array>
#include <utility>

namespace partita {

namespace {

/// Returns the axis called `name` and adds it to `used`. Throws Error if the grid lacks it or `used` has it already.
int resolve_axis(std::string_view text, const Placement::Name& name, const Grid& grid, AxisSet& used) {
  const int axis = grid.find(name.text);
  if (axis < 0)
    fail_notation(text, name.column,
                  fmt::format("there is no axis '{}' in the grid \"{}\"{}", name.text, grid.print(),
                              did_you_mean(name.text, grid.names())));
  if ((used >> axis & 1U) != 0)
    fail_notation(text, name.column, fmt::format("axis '{}' is used twice; an axis shards one dimension", name.text));
  used |= AxisSet{1} << axis;
  return axis;
}

int resolve_dim(std::string_view text, const Placement::Name& name, const Shape& shape) {
  const int d = name.text.size() == 1 ? shape.find(name.text[0]) : -1;
  if (d >= 0) return d;
  std::string names;
  for (const char dim : shape.names()) names += fmt::format("{}{}", names.empty() ? "" : " ", dim);
  fail_notation(text, name.column, fmt::format("there is no dimension '{}'; this tensor has {}", name.text, names));
}

std::string print_axes(const Grid& grid, const AxisList& axes) {
  if (axes.size() == 1) return grid.name(axes[0]);
  std::string text;
  for (const int axis : axes) text += fmt::format("{}{}", text.empty() ? "(" : ",", grid.name(axis));
  return text + ")";
}

}  // namespace

Layout Layout::parse(std::string_view text, const Shape& shape, const Grid& grid) {
  Layout layout(shape, grid);
  AxisSet used = 0;
  bool sum_seen = false;
  std::array<bool, max_dims> seen{};
  for (const auto& word : parse_notation(text)) {
    const bool sum = word.dim.text == "sum";
    const auto d = sum ? std::size_t{0} : static_cast<std::size_t>(resolve_dim(text, word.dim, shape));
    if (sum ? std::exchange(sum_seen, true) : std::exchange(seen[d], true))
      fail_notation(text, word.dim.column, fmt::format("'{}' is named twice", word.dim.text));
    if (sum && word.axes.empty()) fail_notation(text, word.dim.column, "a pending sum needs its axes: sum@axis");
    for (const auto& name : word.axes) {
      const int axis = resolve_axis(text, name, grid, used);
      if (sum)
        layout.partial_ |= AxisSet{1} << axis;
      else
        layout.axes_[d].push_back(axis);
    }
  }
  return layout;
}

std::string Layout::print() const {
  std::string text;
  for (int d = 0; d < shape_.dims(); ++d) {
    text += fmt::format("{}{}", d == 0 ? "" : " ", shape_.name(d));
    if (!axes(d).empty()) text += fmt::format("@{}", print_axes(grid_, axes(d)));
  }
  AxisList partial_axes;
  for (int a = 0; a < grid_.axes(); ++a)
    if ((partial_ >> a & 1U) != 0) partial_axes.push_back(a);
  if (!partial_axes.empty()) text += fmt::format("{}sum@{}", text.empty() ? "" : " ", print_axes(grid_, partial_axes));
  return text;
}

}  // namespace partita
