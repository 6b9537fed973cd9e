#pragma once

#include <boost/program_options.hpp>

#include <string>

namespace partita::cli {

/// The name under which the program was started, for "Usage: ...". A user's own program has a name of its own.
std::string program_name(int argc, char** argv);

/// Reads the options of one verb; the first word is the verb. Words that belong to no option are values of the option
/// `words`; if `words` is null they are errors. Throws Error for an unknown option, with the name of the nearest one,
/// and for a bad value.
boost::program_options::variables_map read_command_line(int argc, char** argv,
                                                        const boost::program_options::options_description& all,
                                                        const char* words = nullptr);

}  // namespace partita::cli
