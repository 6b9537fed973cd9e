#pragma once

#include <boost/program_options.hpp>

namespace partita::cli {

/// Reads the options of one verb, the first word. Words without an option before them go to the option `words`; without
/// such a one they are refused. Throws Error for what cannot be read, with the nearest option's name.
boost::program_options::variables_map read_command_line(int argc, char** argv,
                                                        const boost::program_options::options_description& all,
                                                        const char* words = nullptr);

}  // namespace partita::cli
