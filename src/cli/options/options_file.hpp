#pragma once

#include <boost/program_options.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace partita::cli {

/// An option that a file gives.
struct FileOption {
  std::string name;                 ///< the long name, without "--"
  std::vector<std::string> values;  ///< none for a switch
  bool off = false;                 ///< the file turns off this switch
  std::string place;                ///< file, line and column, e.g. "run.toml, line 3, column 1"
};

/// The options of a file.
struct FileOptions {
  std::vector<FileOption> given;     ///< in the order of the file
  std::vector<std::string> ignored;  ///< keys that only other verbs have
};

/// Reads the text of an options file, which is TOML: keys are long names of options, arrays give several values, and
/// true or false sets a switch. `own` has the options of the verb, of which the first with a name counts; `others` are
/// names that only other verbs have. Throws Error with file, line and column for a key that no verb has (with the name
/// of the nearest option), for a value of the wrong type, and for text that is not TOML.
FileOptions parse_options_file(std::string_view text, const std::string& file,
                               const std::vector<const boost::program_options::options_description*>& own,
                               const std::vector<std::string>& others);

/// Prints options as the text of an options file, with the help of each as a comment. Options without a value and those
/// named in `unused` are commented out. The options --help, --options and --write-options are left out. Reading the
/// text gives the same values. Throws Error if a value is not valid UTF-8, since TOML cannot hold it.
std::string print_options_file(const std::string& title, const boost::program_options::options_description& all,
                               const boost::program_options::variables_map& values,
                               const std::vector<std::string>& unused);

}  // namespace partita::cli
