#pragma once

#include <boost/program_options.hpp>

#include <string>
#include <vector>

namespace partita::cli {

/// Returns the message of an exception of Boost. Its what() replaces %value% by the value, again and again: it never
/// ends if the value itself holds "%value%".
std::string message_of(boost::program_options::error& error);

/// The name under which the program was started, for "Usage: ...". A user's own program has a name of its own.
std::string program_name(int argc, char** argv);

/// Adds the options that every verb has: --help and --options. (program/command_words.hpp replaces --options by the
/// options of its file before a verb reads its command line.)
void add_common_options(boost::program_options::options_description& all);

/// The long names of the options, without "--".
std::vector<std::string> long_names(const boost::program_options::options_description& all);
/// True if the option takes no value: it is on if it is given.
bool is_switch(const boost::program_options::option_description& option);
/// True if the option takes several values, in one list or repeated.
bool takes_several(const boost::program_options::option_description& option);

/// Reads the options of one verb; the first word is the verb. Words that belong to no option are values of the option
/// `words`; if `words` is null they are errors. Throws Error for an unknown option, with the name of the nearest one,
/// for a bad value, and for a word that belongs to no option.
boost::program_options::variables_map read_command_line(int argc, char** argv,
                                                        const boost::program_options::options_description& all,
                                                        const char* words = nullptr);

/// Returns the words of a command line that give an option these values: "--NAME=VALUE" for each, "--NAME" for none.
std::vector<std::string> option_words(const std::string& name, const std::vector<std::string>& values);
/// Throws Error if an option cannot have these values.
void check_option(const std::string& name, const std::vector<std::string>& values,
                  const boost::program_options::options_description& all);

}  // namespace partita::cli
