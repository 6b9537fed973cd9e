#include "partita/base/grid.hpp"

#include "partita/base/error.hpp"
#include "src/base/plain_text.hpp"

#include <algorithm>

namespace partita {

namespace {

constexpr int max_ranks = 1 << 24;

[[noreturn]] void fail_at(std::string_view text, std::size_t at, const std::string& why) {
  fail("grid \"{}\", column {}: {}; write axes as name=extent, e.g. \"data=2 y=2\"", text, at + 1, why);
}

bool is_name(std::string_view word) {
  const auto is_part = [](char c) { return is_letter(c) || is_digit(c) || c == '_'; };
  return !word.empty() && !is_digit(word[0]) && std::all_of(word.begin(), word.end(), is_part);
}

}  // namespace

Grid::Grid() {
  static const auto none = std::make_shared<const Axes>();  // shared, since there are many default layouts
  axes_ = none;
}

Grid Grid::parse(std::string_view text, int first_rank) {
  auto axes = std::make_shared<Axes>();
  for (std::size_t at = text.find_first_not_of(" \t"); at < text.size(); at = text.find_first_not_of(" \t", at)) {
    const auto word = text.substr(at, text.find_first_of(" \t", at) - at);
    const auto equals = word.find('=');
    if (equals == std::string_view::npos) fail_at(text, at, fmt::format("'{}' has no extent", word));
    const std::string name(word.substr(0, equals));
    if (!is_name(name)) fail_at(text, at, fmt::format("'{}' is not a valid axis name", name));
    if (name == "sum") fail_at(text, at, "'sum' stands for a pending sum and cannot name an axis");
    if (std::find(axes->names.begin(), axes->names.end(), name) != axes->names.end())
      fail_at(text, at, fmt::format("axis '{}' is named twice", name));
    const auto number = word.substr(equals + 1);
    const int extent = parse_number<int>(number).value_or(0);
    if (extent < 1)
      fail_at(text, at + equals + 1, fmt::format("'{}' is not an extent (an integer of 1 or more)", number));
    if (axes->names.size() == max_axes) fail_at(text, at, fmt::format("a grid has at most {} axes", max_axes));
    if (extent > max_ranks / axes->size) fail_at(text, at, fmt::format("a grid has at most {} ranks", max_ranks));
    axes->names.push_back(name);
    axes->extents.push_back(extent);
    axes->size *= extent;
    at += word.size();
  }
  axes->strides.resize(axes->extents.size());
  int stride = 1;
  for (std::size_t a = axes->extents.size(); a-- > 0; stride *= axes->extents[a]) axes->strides[a] = stride;
  Grid grid;
  grid.axes_ = std::move(axes);
  grid.first_rank_ = first_rank;
  return grid;
}

Grid Grid::at(int first_rank) const {
  Grid grid = *this;
  grid.first_rank_ = first_rank;
  return grid;
}

const std::string& Grid::name(int axis) const { return axes_->names[axis]; }
const std::vector<std::string>& Grid::names() const { return axes_->names; }

int Grid::find(std::string_view name) const {
  const auto at = std::find(axes_->names.begin(), axes_->names.end(), name);
  return at == axes_->names.end() ? -1 : static_cast<int>(at - axes_->names.begin());
}

std::vector<int> Grid::group(int rank, AxisSet axes) const {
  int origin = rank;
  for (int a = 0; a < this->axes(); ++a)
    if ((axes >> a & 1U) != 0) origin -= coordinate(rank, a) * stride(a);
  std::vector<int> ranks;
  ranks.reserve(static_cast<std::size_t>(group_size(axes)));
  ranks.push_back(origin);
  for (int a = this->axes(); a-- > 0;) {  // the fastest axis first, so that the ranks ascend
    if ((axes >> a & 1U) == 0) continue;
    const std::size_t inner = ranks.size();
    for (int i = 1; i < extent(a); ++i)
      for (std::size_t j = 0; j < inner; ++j) ranks.push_back(ranks[j] + i * stride(a));
  }
  return ranks;
}

int Grid::group_size(AxisSet axes) const {
  int size = 1;
  for (int a = 0; a < this->axes(); ++a)
    if ((axes >> a & 1U) != 0) size *= extent(a);
  return size;
}

int Grid::distance(int a, int b) const {
  int count = 0;
  for (int axis = 0; axis < axes(); ++axis) count += coordinate(a, axis) != coordinate(b, axis) ? 1 : 0;
  return count;
}

std::string Grid::print() const {
  std::string text;
  for (int a = 0; a < axes(); ++a) text += fmt::format("{}{}={}", a == 0 ? "" : " ", name(a), extent(a));
  return text;
}

std::string Grid::print(AxisSet axes) const {
  std::string text;
  for (int a = 0; a < this->axes(); ++a)
    if ((axes >> a & 1U) != 0) text += fmt::format("{}{}", text.empty() ? "" : ",", name(a));
  return "(" + text + ")";
}

bool Grid::operator==(const Grid& other) const { return first_rank_ == other.first_rank_ && same_axes(other); }

bool Grid::same_axes(const Grid& other) const {
  return axes_ == other.axes_ || (axes_->extents == other.axes_->extents && axes_->names == other.axes_->names);
}

int representative_rank(const Grid& grid, int rank, AxisSet axes) {
  if (axes == grid.all()) return 0;
  int first = rank;
  for (int axis = 0; axis < grid.axes(); ++axis)
    if ((axes >> axis & 1U) != 0) first -= grid.coordinate(rank, axis) * grid.stride(axis);
  return first;
}

}  // namespace partita
