#pragma once

#include <boost/program_options.hpp>

#include <set>
#include <string>
#include <vector>

namespace partita::cli {

/// Returns the message of an exception of Boost. Its what() replaces %value% by the value, again and again: it never
/// ends if the value itself holds "%value%".
std::string message_of(boost::program_options::error& error);

/// The name under which the program was started, for "Usage: ...", from the first word of its command line. A user's
/// own program has a name of its own.
std::string program_name(const std::string& path);

/// Adds the options that every verb has: --help and --options. (program/command_words.hpp replaces --options by the
/// options of its file before a verb reads its command line.)
void add_common_options(boost::program_options::options_description& all);

/// The long names of the options, without "--".
std::vector<std::string> long_names(const boost::program_options::options_description& all);
/// True if the option takes no value: it is on if it is given.
bool is_switch(const boost::program_options::option_description& option);
/// True if the option takes several values, in one list or repeated.
bool takes_several(const boost::program_options::option_description& option);

/// A command line that was read.
struct CommandLine {
  const boost::program_options::options_description& options;  ///< of the verb
  boost::program_options::variables_map values;
  std::vector<std::string> words;      ///< with the program and the verb
  std::set<std::string> given;         ///< names of the options that are given, or turned off
  std::vector<std::string> passed_on;  ///< words of options that the verb does not have

  bool asks_for_help() const { return values.count("help") != 0; }
  bool gives(const std::string& option) const { return given.contains(option); }
};

/// What a verb does with words that belong to no option: values of an option, words that it passes on, or errors.
struct OtherWords {
  const char* option = nullptr;
  bool pass_on = false;
};

/// Reads the words after the first two, the program and the verb, and stores their values, unless they ask for help.
/// Throws Error for an unknown option, with the name of the nearest one, for a bad value, and for a word that belongs
/// to no option.
/// @pre `all` outlives the result.
CommandLine read_command_line(const std::vector<std::string>& words,
                              const boost::program_options::options_description& all, const OtherWords& others = {});

/// Returns the words of a command line that give an option these values: "--NAME=VALUE" for each, "--NAME" for none.
std::vector<std::string> option_words(const std::string& name, const std::vector<std::string>& values);
/// Throws Error if an option cannot have these values.
void check_option(const std::string& name, const std::vector<std::string>& values,
                  const boost::program_options::options_description& all);

}  // namespace partita::cli
