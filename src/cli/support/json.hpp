#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace partita::cli {

using Json = nlohmann::ordered_json;

/// A document as text. What is no UTF-8, as the names of files may be, is replaced by U+FFFD.
inline std::string print_json(const Json& json, int indent = 2) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// A text as it comes back from a document.
inline std::string in_json(const std::string& text) { return Json::parse(print_json(text)); }

}  // namespace partita::cli
