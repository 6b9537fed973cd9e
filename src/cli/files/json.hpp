#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace partita::cli {

using Json = nlohmann::ordered_json;

/// Prints a document. Bytes that are not valid UTF-8, as in names of files, are replaced by U+FFFD.
inline std::string print_json(const Json& json, int indent = 2) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// The deepest nesting of lists and objects that is read. Ours reaches 8. Programs that print or check a document call
/// themselves for each level, so a document of 200,000 levels would overflow the stack.
inline constexpr int deepest_json = 100;

/// Returns true if lists and objects are nested deeper than `deepest_json`. The text need not be JSON.
inline bool is_too_deep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') ++i;  // skips what the backslash escapes
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > deepest_json) return true;
  }
  return false;
}

/// Returns a text as it is after it was printed as JSON and parsed again.
inline std::string in_json(const std::string& text) { return Json::parse(print_json(text)); }

}  // namespace partita::cli
