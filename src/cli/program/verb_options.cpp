#include "src/cli/program/verb_options.hpp"

#include "src/cli/support/options.hpp"
#include "src/cli/support/verb_list.hpp"
#include "src/cli/verbs/info/info.hpp"
#include "src/cli/verbs/report/report.hpp"
#include "src/cli/verbs/scale/scale_options.hpp"
#include "src/cli/verbs/schedule/schedule.hpp"

#include <fmt/format.h>

#include <set>

namespace partita::cli {

namespace po = boost::program_options;

namespace {

std::vector<po::options_description> describe(const std::string& verb, const std::string& program, bool builtin) {
  if (verb == "schedule") return {describe_schedule(program)};
  if (verb == "report") return {describe_report(program)};
  if (verb == "info") return {describe_info(program)};
  if (verb == "scale") return {describe_scale(program), describe_options("train", program, builtin)};
  return {describe_options(verb, program, builtin)};
}

}  // namespace

std::vector<VerbOptions> verb_options(const std::string& program, bool builtin) {
  std::vector<VerbOptions> verbs;
  for (const auto& [name, summary, example] : verb_list())
    verbs.push_back({name, summary, fmt::format(fmt::runtime(example), program), describe(name, program, builtin),
                     std::string(name) == "report" ? "file" : nullptr});
  return verbs;
}

std::vector<const po::option_description*> listed_options(const VerbOptions& verb) {
  std::vector<const po::option_description*> listed;
  std::set<std::string> names{"help"};
  for (const auto& all : verb.options)
    for (const auto& option : all.options())
      if (names.insert(option->long_name()).second) listed.push_back(option.get());
  return listed;
}

}  // namespace partita::cli
