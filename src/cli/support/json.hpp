#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace partita::cli {

using Json = nlohmann::ordered_json;

/// Prints a document. Bytes that are not valid UTF-8, as in names of files, are replaced by U+FFFD.
inline std::string print_json(const Json& json, int indent = 2) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// Returns a text as it is after it was printed as JSON and parsed again.
inline std::string in_json(const std::string& text) { return Json::parse(print_json(text)); }

}  // namespace partita::cli
