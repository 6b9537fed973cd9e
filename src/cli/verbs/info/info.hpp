#pragma once

#include <boost/program_options.hpp>

#include <string>

namespace partita::cli {

/// Runs the verb `info`: prints versions, the processor, memory, limits and settings. It needs one process only.
/// Returns the exit status.
int info(int argc, char** argv);
/// Returns the descriptions of the options. They serve to print options and to check values; they cannot store values
/// (no boost::program_options::notify).
boost::program_options::options_description describe_info(const std::string& program);

}  // namespace partita::cli
