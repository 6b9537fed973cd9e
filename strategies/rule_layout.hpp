#pragma once

#include "partita/layouts/layout.hpp"
#include "partita/strategies/strategy.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// One key of the merged rules of a layer, and the rule that it came from.
struct Setting {
  const std::string* text = nullptr;
  const Strategy::Rule* rule = nullptr;
};

/// Rules merge key by key, later ones win.
Setting setting(const Strategy& strategy, const std::string& layer, std::optional<std::string> LayerRule::*key);

/// True for the name of a dimension that some tensor has.
bool is_dim(const std::string& text);

/// The layout that a setting asks for. A plain name's must fit exactly; of a pattern's, dimensions that this layer lacks and axes that
/// its stage's grid lacks are left out, and noted. Only an output may be a pending sum. Throws Error with the rule's place.
Layout read_layout(const Setting& from, const Shape& shape, const Grid& grid, std::string_view key,
                   std::vector<std::string>& notes);

}  // namespace partita
