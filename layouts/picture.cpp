#include "partita/layouts/picture.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace partita {

namespace {

std::string print(Interval side) { return fmt::format("[{},{})", side.lo, side.hi); }

/// Returns the distinct intervals that the ranks own along dimension `d`, in ascending order.
std::vector<Interval> cuts(const std::vector<Box>& owned, int d) {
  std::vector<Interval> sides;
  for (const auto& box : owned)
    if (std::find(sides.begin(), sides.end(), box[d]) == sides.end()) sides.push_back(box[d]);
  std::sort(sides.begin(), sides.end(),
            [](Interval a, Interval b) { return std::pair(a.lo, a.hi) < std::pair(b.lo, b.hi); });
  return sides;
}

/// Returns the ranks that own these intervals of the two dimensions, e.g. "0,2". `first` is the rank of the first box.
std::string ranks_of(const std::vector<Box>& owned, int first, int r, Interval row, int c, Interval column) {
  std::string ranks;
  int rank = first;
  for (const Box& box : owned) {
    if (box[r] == row && box[c] == column) ranks += fmt::format("{}{}", ranks.empty() ? "" : ",", rank);
    ++rank;
  }
  return ranks;
}

/// Appends a line without its trailing blanks.
void add_line(std::string& text, std::string_view line) {
  text += line.substr(0, line.find_last_not_of(' ') + 1);
  text += '\n';
}

}  // namespace

std::string picture(const Layout& layout, char rows, char columns) {
  for (const char dim : {rows, columns}) static_cast<void>(layout.shape()[dim]);  // throws if the dimension is missing
  const int r = layout.shape().find(rows), c = layout.shape().find(columns);
  const auto owned = layout.owned();
  const int first = layout.grid().first_rank();
  const auto row_cuts = cuts(owned, r), column_cuts = cuts(owned, c);
  std::size_t margin = 0, width = 0;
  for (const auto& row : row_cuts) {
    margin = std::max(margin, print(row).size() + 2);
    for (const auto& column : column_cuts)
      width = std::max({width, ranks_of(owned, first, r, row, c, column).size(), print(column).size()});
  }
  std::string text, line = fmt::format("{:>{}}", columns, margin + 2);
  for (const auto& column : column_cuts) line += fmt::format("  {:^{}}", print(column), width);
  add_line(text, line);
  for (const auto& row : row_cuts) {
    line = fmt::format("{} {:<{}}", rows, print(row), margin);
    for (const auto& column : column_cuts)
      line += fmt::format("  {:^{}}", ranks_of(owned, first, r, row, c, column), width);
    add_line(text, line);
  }
  return text;
}

}  // namespace partita
