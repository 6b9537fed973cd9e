#pragma once

#include "partita/layouts/layout.hpp"
#include "partita/model/model.hpp"
#include "partita/strategies/declare/strategy.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// One key of a layer's merged rules, and the rule that it comes from. Both are null if no rule sets it.
struct Setting {
  const std::string* text = nullptr;
  const Strategy::Rule* rule = nullptr;
  /// Returns true if both settings have the same effect on equal layers. Patterns differ, since their notes name them.
  bool same(const Setting& other) const;
};

/// All keys of a layer, each from the last matching rule that sets it. Refers to the strategy, which must outlive it.
struct LayerSettings {
  Setting output, input, weights, algorithm;
  const Strategy::Rule* recompute = nullptr;
  /// Returns true if all keys that affect the layer's layouts are the same.
  bool same(const LayerSettings& other) const;
};

/// Returns the merged settings of every layer. Throws Error with the rule's position if a rule matches no layer, or if
/// a pattern shards a dimension that none of its layers has or uses an axis that none of the grids has.
std::vector<LayerSettings> settings_of_layers(const Model& model, const Strategy& strategy,
                                              const std::vector<Grid>& grids);

/// Returns the layout that a setting asks for. A rule with a plain name must fit exactly. A pattern's dimensions that
/// this layer lacks, and axes that its stage's grid lacks, are dropped and added to `notes`. Only an output may be a
/// pending sum. Throws Error with the rule's position.
Layout read_layout(const Setting& from, const Shape& shape, const Grid& grid, std::string_view key,
                   std::vector<std::string>& notes);

}  // namespace partita
