#pragma once

#include "layouts/notation.hpp"
#include "partita/model/model.hpp"
#include "partita/strategies/declare/strategy.hpp"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace partita {

/// The different values that a strategy's rules give one key, e.g. `output`, and which of them each layer gets.
struct RuleValues {
  std::vector<std::string> values;
  std::vector<std::optional<std::size_t>> of_layer;  ///< index into `values`; nothing if no rule sets the key
};

/// Returns a rule's value for a key, or nothing.
using ReadKey = std::function<std::optional<std::string>(const LayerRule&)>;

/// Returns the values of the key that `read` reads.
RuleValues rule_values(const Model& model, const Strategy& strategy, const ReadKey& read);

/// Returns the words of a layout that say something about a tensor: those with axes, of dimensions that it has.
std::vector<Placement> fitting_words(const std::string& layout, const std::function<bool(char)>& has);

/// Returns the words in an order that depends neither on the order of dimensions nor on that of their axes.
std::vector<std::pair<std::string, std::vector<std::string>>> unordered(const std::vector<Placement>& words);

}  // namespace partita
