#pragma once

#include "src/cli/options/command.hpp"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace partita::cli {

/// All verbs, in the order of `--help`. The verbs `completion` and `man`, which only an installation needs, are left
/// out.
std::span<const VerbEntry* const> verbs();
/// The verb with this name; null if there is none.
const VerbEntry* find_verb(std::string_view name);

/// A verb with the descriptions of its options, to print them and to check values.
struct VerbOptions {
  const VerbEntry* entry = nullptr;
  std::unique_ptr<Command> verb;  ///< where values would be stored
  boost::program_options::options_description own;
  /// The verb to which it passes the options that it does not have; null for none.
  std::unique_ptr<const VerbOptions> passes_to;

  /// The descriptions: its own, then those that it passes on. The first with a name counts.
  std::vector<const boost::program_options::options_description*> descriptions() const;
  /// The options, each name once, without --help.
  std::vector<const boost::program_options::option_description*> listed() const;
};
/// @pre `program` outlives the result.
VerbOptions options_of(const VerbEntry& entry, const std::string& program_name, const Program& program);

/// Returns the answer to `--help` without a verb.
std::string print_usage(const std::string& program_name);

/// Makes the verb that a command line names, and gives it its options. `off` are the names of switches that are turned
/// off, which the words leave out. Returns null if the user asked for help or the version; `answer` is then the text to
/// print. Throws Error for an unknown verb or option or for a bad value; the message names the nearest one.
/// @pre `program` outlives the result.
std::unique_ptr<Command> read_verb(const std::vector<std::string>& words, const std::set<std::string>& off,
                                   const Program& program, std::string& answer);

}  // namespace partita::cli
