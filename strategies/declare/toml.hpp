#pragma once

#include "partita/base/error.hpp"
#include "strategies/declare/toml_text.hpp"

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#define TOML_EXCEPTIONS 1
// toml++ 3.3, if used header-only, asserts on some bad input that it then also refuses with a message, e.g. [1, }.
#define TOML_ASSERT(expression) static_cast<void>(0)
#include <toml++/toml.h>

namespace partita {

/// Reads the tables of one TOML file. Every message begins with file, line and column.
class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  toml::table parse(std::string_view text) const {
    check_toml_text(text, file_);
    try {
      return toml::parse(text, file_);
    } catch (const toml::parse_error& error) {
      fail("{}: {}", place(error.source()), error.description());
    }
  }

  std::string place(const toml::source_region& source) const {
    return fmt::format("{}, line {}, column {}", file_, source.begin.line, source.begin.column);
  }
  std::string place(const toml::node& node) const { return place(node.source()); }

  template <class... Args>
  [[noreturn]] void refuse(const toml::node& node, fmt::format_string<Args...> text, Args&&... args) const {
    fail("{}: {}", place(node), fmt::format(text, std::forward<Args>(args)...));
  }

  void check_keys(const toml::table& table, const std::vector<std::string>& known, std::string_view where) const {
    for (const auto& [key, node] : table)
      if (const std::string name(key.str()); std::find(known.begin(), known.end(), name) == known.end())
        fail("{}: {} has no key '{}'{}; it has {}", place(key.source()), where, name, did_you_mean(name, known),
             quoted_list(known));
  }

  std::optional<std::string> text(const toml::table& table, std::string_view key) const {
    const auto* node = table.get(key);
    if (node == nullptr) return std::nullopt;
    const auto* value = node->as_string();
    if (value == nullptr) refuse(*node, "'{}' must be a text in quotes", key);
    return value->get();
  }

  std::optional<bool> boolean(const toml::table& table, std::string_view key) const {
    const auto* node = table.get(key);
    if (node == nullptr) return std::nullopt;
    const auto* value = node->as_boolean();
    if (value == nullptr) refuse(*node, "'{}' must be true or false", key);
    return value->get();
  }

  /// Returns the tables of [[key]]; an empty vector if there are none.
  std::vector<const toml::table*> tables(const toml::table& root, std::string_view key) const {
    std::vector<const toml::table*> tables;
    const auto* node = root.get(key);
    if (node == nullptr) return tables;
    const auto* array = node->as_array();
    if (array == nullptr) refuse(*node, "'{}' must be written as [[{}]]", key, key);
    for (const auto& element : *array) {
      if (element.as_table() == nullptr) refuse(element, "'{}' must be written as [[{}]]", key, key);
      tables.push_back(element.as_table());
    }
    return tables;
  }

 private:
  const std::string& file_;
};

/// Returns a text in TOML notation, which reads back as the same text.
inline std::string quoted(const std::string& text) {
  std::ostringstream out;
  out << toml::toml_formatter{toml::value(text), toml::format_flags::none};
  return out.str();
}

/// Returns the contents of a file. Throws Error with the kind of file ("strategy") and the system's reason. A pipe or
/// terminal, such as /dev/stdin, is read once in each process; later calls return the same text.
std::string read_file(std::string_view kind, const std::string& path);

}  // namespace partita
