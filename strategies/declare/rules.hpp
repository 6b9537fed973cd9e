#pragma once

#include "partita/layouts/layout.hpp"
#include "partita/model/model.hpp"
#include "partita/strategies/declare/strategy.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// One key of the merged rules of a layer, and the rule that it came from; null where no rule says it.
struct Setting {
  const std::string* text = nullptr;
  const Strategy::Rule* rule = nullptr;
  /// True if what follows from both is the same for equal layers: patterns leave notes with their names.
  bool same(const Setting& other) const;
};

/// All keys of a layer: of each, the last rule that matches it and says something. They refer to the strategy.
struct LayerSettings {
  Setting output, input, weights, algorithm;
  const Strategy::Rule* recompute = nullptr;
  /// The same of all keys that decide how a layer lies.
  bool same(const LayerSettings& other) const;
};

/// Of all layers. Throws Error with the rule's place for one that matches no layer, for a pattern that shards a dimension that
/// none of its layers has, and for one with an axis that none of the grids has.
std::vector<LayerSettings> settings_of_layers(const Model& model, const Strategy& strategy,
                                              const std::vector<Grid>& grids);

/// The layout that a setting asks for. A plain name's must fit exactly; of a pattern's, dimensions that this layer lacks and axes that
/// its stage's grid lacks are left out, and noted. Only an output may be a pending sum. Throws Error with the rule's place.
Layout read_layout(const Setting& from, const Shape& shape, const Grid& grid, std::string_view key,
                   std::vector<std::string>& notes);

}  // namespace partita
