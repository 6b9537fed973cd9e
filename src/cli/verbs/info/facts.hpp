#pragma once

#include "src/cli/files/json.hpp"

#include <string>
#include <utility>
#include <vector>

namespace partita::cli {

/// One fact: how it is printed, and what is written as JSON.
struct Fact {
  std::string name;
  std::string key;
  std::string text;
  Json value;

  /// A fact that is a text.
  Fact(std::string shown_name, std::string json_key, const std::string& is)
      : name(std::move(shown_name)), key(std::move(json_key)), text(is), value(is) {}
  Fact(std::string shown_name, std::string json_key, std::string shown, Json is)
      : name(std::move(shown_name)), key(std::move(json_key)), text(std::move(shown)), value(std::move(is)) {}
};

/// Facts of one subject.
struct FactGroup {
  std::string title;
  std::string key;
  std::vector<Fact> facts;
};

}  // namespace partita::cli
