#include "src/cli/verbs/info/info.hpp"

#include "src/cli/support/command_line.hpp"
#include "src/cli/support/text_file.hpp"
#include "src/cli/verbs/info/build.hpp"
#include "src/cli/verbs/info/system.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace partita::cli {

namespace {

namespace po = boost::program_options;

po::options_description add_options(std::string& json, const std::string& program) {
  po::options_description all("Usage: " + program + " info [options]");
  add_common_options(all);
  all.add_options()("json", po::value(&json)->implicit_value(standard_output, "")->value_name("FILE"),
                    "write this as JSON to FILE; without FILE, print JSON instead of the text");
  return all;
}

std::string print_facts(const std::vector<FactGroup>& groups) {
  std::string text;
  for (const auto& [title, key, facts] : groups) {
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n", title);
    std::size_t width = 16;
    for (const auto& fact : facts) width = std::max(width, fact.name.size());
    for (const auto& fact : facts) text += fmt::format("  {:<{}}  {}\n", fact.name, width, fact.text);
    if (facts.empty()) text += "  none of the variables that matter is set\n";
  }
  return text;
}

Json to_json(const std::vector<FactGroup>& groups) {
  Json json;
  json["subject"] = "info";
  for (const auto& [title, key, facts] : groups) {
    json[key] = Json::object();
    for (const auto& fact : facts) json[key][fact.key] = fact.value;
  }
  return json;
}

}  // namespace

po::options_description describe_info(const std::string& program) {
  std::string unused;
  return add_options(unused, program);
}

int info(int argc, char** argv) {
  std::string json;
  const auto all = add_options(json, program_name(argc, argv));
  const auto values = read_command_line(argc - 1, argv + 1, all);
  if (values.count("help") != 0) {
    std::ostringstream text;
    text << all;
    fmt::print("{}", text.str());
    return 0;
  }
  check_writable({{"--json", json, FileKind::json}});
  const std::vector<FactGroup> groups{versions(), build_options(), hardware(), limits(), environment()};
  if (json != standard_output) fmt::print("{}", print_facts(groups));
  if (!json.empty()) write_text("--json", json, print_json(to_json(groups)));
  return 0;
}

}  // namespace partita::cli
