#include "src/cli/files/text_file.hpp"
#include "src/cli/options/command.hpp"
#include "src/cli/options/command_line.hpp"
#include "src/cli/verbs/info/build.hpp"
#include "src/cli/verbs/info/system.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace partita::cli {

namespace {

namespace po = boost::program_options;

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

class Info final : public Command {
 public:
  explicit Info(const Program&) {}
  void add_options(po::options_description& all) override {
    all.add_options()("json", po::value(&json_)->implicit_value(standard_output, "")->value_name("FILE"),
                      "write this as JSON to FILE; without FILE, print JSON instead of the text");
  }
  int run(Communicator*) const override {
    check_writable({{"--json", json_, FileKind::json}});
    const std::vector<FactGroup> groups{versions(), build_options(), hardware(), limits(), environment()};
    if (json_ != standard_output) fmt::print("{}", print_facts(groups));
    if (!json_.empty()) write_text("--json", json_, print_json(to_json(groups)));
    return 0;
  }

 private:
  std::string json_;
};

}  // namespace

extern const VerbEntry info_verb{
    "info", "prints versions, processor, memory, limits and settings, e.g. for a bug report", "", make<Info>};

}  // namespace partita::cli
