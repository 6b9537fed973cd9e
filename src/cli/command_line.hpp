#pragma once

#include <boost/program_options.hpp>

namespace partita::cli {

/// Reads the options of one verb, the first word. Throws Error for what cannot be read, with the nearest option's name.
boost::program_options::variables_map read_command_line(int argc, char** argv,
                                                        const boost::program_options::options_description& all);

}  // namespace partita::cli
