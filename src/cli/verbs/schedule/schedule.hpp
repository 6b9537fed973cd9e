#pragma once

#include <boost/program_options.hpp>

#include <string>

namespace partita::cli {

/// Runs the verb `schedule`: generates or reads a schedule and prints what it costs. It has options of its own and
/// needs one process only. Returns the exit status.
int schedule(int argc, char** argv);
/// Returns the descriptions of the options. They serve to print options and to check values; they cannot store values
/// (no boost::program_options::notify).
boost::program_options::options_description describe_schedule(const std::string& program);

}  // namespace partita::cli
