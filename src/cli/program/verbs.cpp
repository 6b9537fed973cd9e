#include "src/cli/program/verbs.hpp"

#include "partita/base/error.hpp"
#include "partita/comm/mpi.hpp"
#include "src/cli/version.hpp"

#include <fmt/format.h>

#include <array>
#include <set>
#include <sstream>

namespace partita::cli {

namespace po = boost::program_options;

// Each is defined beside its class, in verbs/NAME/NAME.cpp.
extern const VerbEntry train_verb, evaluate_verb, generate_verb, explain_verb, compare_verb, plan_verb, simulate_verb,
    calibrate_verb, schedule_verb, scale_verb, report_verb, info_verb;

namespace {

/// Breaks a text at spaces into lines of at most `width` columns.
std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (text.size() > width) {
    const auto space = text.rfind(' ', width);
    if (space == std::string_view::npos) break;
    lines.emplace_back(text.substr(0, space));
    text.remove_prefix(space + 1);
  }
  lines.emplace_back(text);
  return lines;
}

po::options_description describe(const VerbEntry& entry, const std::string& program_name, Command& verb) {
  po::options_description all(fmt::format("Usage: {} {} {}", program_name, entry.name, entry.usage));
  add_common_options(all);
  verb.add_options(all);
  return all;
}

std::string print_help(const VerbEntry& entry, const po::options_description& all) {
  std::ostringstream text;
  text << all;
  if (entry.passes_options != nullptr)
    text << "\nAll other options are passed to every run; see " << entry.passes_options << " --help.\n";
  return text.str();
}

}  // namespace

std::span<const VerbEntry* const> verbs() {
  static const std::array all{&train_verb,    &evaluate_verb, &generate_verb, &explain_verb,
                              &compare_verb,  &plan_verb,     &simulate_verb, &calibrate_verb,
                              &schedule_verb, &scale_verb,    &report_verb,   &info_verb};
  return all;
}

const VerbEntry* find_verb(std::string_view name) {
  for (const VerbEntry* verb : verbs())
    if (verb->name == name) return verb;
  return nullptr;
}

std::vector<const po::options_description*> VerbOptions::descriptions() const {
  std::vector<const po::options_description*> all{&own};
  if (passes_to) all.push_back(&passes_to->own);
  return all;
}

std::vector<const po::option_description*> VerbOptions::listed() const {
  std::vector<const po::option_description*> listed;
  std::set<std::string> names{"help"};
  for (const auto* all : descriptions())
    for (const auto& option : all->options())
      if (names.insert(option->long_name()).second) listed.push_back(option.get());
  return listed;
}

VerbOptions options_of(const VerbEntry& entry, const std::string& program_name, const Program& program) {
  auto verb = entry.make(program);
  auto own = describe(entry, program_name, *verb);
  std::unique_ptr<const VerbOptions> passes_to;
  if (entry.passes_options != nullptr)
    passes_to =
        std::make_unique<const VerbOptions>(options_of(*find_verb(entry.passes_options), program_name, program));
  return {&entry, std::move(verb), std::move(own), std::move(passes_to)};
}

std::string print_usage(const std::string& program_name) {
  constexpr std::size_t column = 13, width = 100;
  std::string text = fmt::format("Usage: {} VERB [options]\n\nVerbs\n", program_name);
  for (const VerbEntry* verb : verbs()) {
    const bool shown = *verb->example != '\0';
    std::string left = fmt::format("  {:<{}}", verb->name, column - 2);
    for (const auto& line : wrapped(std::string(verb->summary) + (shown ? ":" : ""), width - column)) {
      text += left + line + "\n";
      left = std::string(column, ' ');
    }
    if (shown) text += fmt::format("{:15}{}\n", "", fmt::format(fmt::runtime(verb->example), program_name));
  }
  return text + fmt::format("\n{0} VERB --help lists the options of a verb; {0} --version prints the version.\n",
                            program_name);
}

std::unique_ptr<Command> read_verb(const std::vector<std::string>& words, const std::set<std::string>& off,
                                   const Program& program, std::string& answer) {
  const std::string name = words.size() > 1 ? words[1] : "--help", program_shown = program_name(words.front());
  if (name == "--version")
    answer = fmt::format("partita {} ({})\n", version, have_mpi() ? mpi_version() : "without MPI");
  if (name == "--help" || name == "-h" || name == "help") answer = print_usage(program_shown);
  if (!answer.empty()) return nullptr;
  const VerbEntry* entry = find_verb(name);
  if (entry == nullptr) {
    std::vector<std::string> names;
    for (const VerbEntry* verb : verbs()) names.emplace_back(verb->name);
    fail("there is no verb '{}'{}; the verbs are {}", name, did_you_mean(name, names), quoted_list(names));
  }
  auto verb = entry->make(program);
  const po::options_description all = describe(*entry, program_shown, *verb);
  CommandLine line = read_command_line(words, all, {entry->words, entry->passes_options != nullptr});
  if (line.asks_for_help()) {
    answer = print_help(*entry, all);
    return nullptr;
  }
  line.given.insert(off.begin(), off.end());
  verb->check(line);
  return verb;
}

}  // namespace partita::cli
