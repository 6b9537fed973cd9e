#pragma once

#include "src/cli/support/options.hpp"

#include <boost/program_options.hpp>

namespace partita::cli {

/// Adds --ranks, for a verb that runs on ranks. A notification stores it in `options`.
void add_rank_option(boost::program_options::options_description& group, Options& options);

/// Decides whether ranks are threads, and how tensors travel between their cards. Throws Error if --ranks and other
/// options, or the processes that a launcher started, do not fit together.
/// @pre Options::given is set.
void settle_ranks(Options& options);

}  // namespace partita::cli
