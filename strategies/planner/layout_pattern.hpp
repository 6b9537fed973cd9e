#pragma once

#include "partita/base/shape.hpp"

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace partita {

/// How the ranks of one stage share a microbatch: the extents of the grid's axes.
struct Shares {
  int data = 1, y = 1, x = 1, c = 1;
  int split() const { return y * x * c; }
  auto operator<=>(const Shares&) const = default;

  /// The axes that split one sample, by name.
  std::array<std::pair<std::string_view, int>, 3> splitting() const { return {{{"y", y}, {"x", x}, {"c", c}}}; }
  /// Returns the grid's text, without axes of one rank.
  std::string grid() const;
};

/// A layout that all layers of a model can be asked for: the axes that shard each dimension.
struct LayoutPattern {
  struct Entry {
    char dim;
    std::vector<std::string> axes;
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> entries;  ///< in the order of a rule's text; each has an axis
  bool operator==(const LayoutPattern&) const = default;

  /// Returns the text of a rule, "N@data H@(y,x)"; "" if nothing is sharded.
  std::string rule() const;
  /// Returns the entries whose dimensions the shape has, because a rule that names a layer exactly must fit it.
  LayoutPattern of(const Shape& shape) const;
  /// Returns the patterns with fewer entries, those with the most first; the last one shards nothing.
  std::vector<LayoutPattern> smaller() const;
  /// Returns true if the axis shards another dimension than the samples.
  bool splits_samples(std::string_view axis) const;
};

/// Returns the layout patterns of a grid, each once. The axes y and x shard the dimensions named in `spatial`, at most
/// two. Axes of one rank are left out.
std::vector<LayoutPattern> layout_patterns(const Shares& shares, const std::string& spatial);

}  // namespace partita
