#pragma once

#include "src/cli/support/options.hpp"

namespace partita::cli {

/// Describes the options of plan alone.
boost::program_options::options_description plan_options(Options& o);
/// Checks their values.
void check_plan(const Options& o);

}  // namespace partita::cli
