#pragma once

#include <boost/program_options.hpp>

#include <string>

namespace partita::cli {

/// The name under which the program was started, for "Usage: ...": that of a user's own, too.
std::string program_name(int argc, char** argv);

/// Reads the options of one verb, the first word. Words without an option before them go to the option `words`; without
/// such a one they are refused. Throws Error for what cannot be read, with the nearest option's name.
boost::program_options::variables_map read_command_line(int argc, char** argv,
                                                        const boost::program_options::options_description& all,
                                                        const char* words = nullptr);

}  // namespace partita::cli
