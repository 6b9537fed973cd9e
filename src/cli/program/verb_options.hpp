#pragma once

#include <boost/program_options.hpp>

#include <string>
#include <vector>

namespace partita::cli {

/// A verb with the descriptions of its options. They serve to print options and to check values; they cannot store
/// values (no boost::program_options::notify).
struct VerbOptions {
  std::string name;
  std::string summary;
  std::string example;  ///< "" for none
  /// The options of the verb itself, then those that it passes on. The first with a name counts.
  std::vector<boost::program_options::options_description> options;
  const char* words = nullptr;  ///< the option that takes words without an option; null for none
};

/// Returns all verbs. `builtin` says whether the program has the options that choose a built-in model.
std::vector<VerbOptions> verb_options(const std::string& program, bool builtin);
/// Returns the options of a verb, each name once, without --help.
std::vector<const boost::program_options::option_description*> listed_options(const VerbOptions& verb);

}  // namespace partita::cli
