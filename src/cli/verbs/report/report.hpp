#pragma once

#include <boost/program_options.hpp>

#include <string>

namespace partita::cli {

/// Runs the verb `report`: writes an HTML page that shows the JSON results of train, scale and compare. It has options
/// of its own and needs one process only. Returns the exit status.
int report(int argc, char** argv);
/// Returns the descriptions of the options. They serve to print options and to check values; they cannot store values
/// (no boost::program_options::notify).
boost::program_options::options_description describe_report(const std::string& program);

}  // namespace partita::cli
