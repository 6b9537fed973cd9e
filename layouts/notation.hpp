#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// One word of a layout's notation, e.g. "H@(y,x)": a dimension (or "sum") and the axes after its '@'.
struct Placement {
  /// A name and its position in the notation, for messages.
  struct Name {
    std::string text;
    std::size_t column = 0;  ///< counted from 0
  };
  Name dim;
  std::vector<Name> axes;  ///< empty for a dimension without axes
};

/// Splits the notation into words, with the grammar { name [ "@" ( name | "(" name { "," name } ")" ) ] }.
/// It does not check the names against a shape or a grid. Throws Error that points at the column.
std::vector<Placement> parse_notation(std::string_view text);

/// The inverse of `parse_notation`.
std::string print_notation(const std::vector<Placement>& words);

/// Throws an Error that quotes the notation, names the column (counted from 1) and draws a caret below it.
[[noreturn]] void fail_notation(std::string_view text, std::size_t column, const std::string& why);

}  // namespace partita
