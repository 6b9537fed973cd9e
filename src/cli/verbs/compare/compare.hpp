#pragma once

#include "src/cli/support/options.hpp"

#include <memory>

namespace partita::cli {

/// Runs the verb `compare` and returns the exit status. With --measure, `world` holds the ranks that run the
/// strategies, and the call is collective: every rank of `world` calls it. Without --measure, `world` is null.
int compare(const Options& options, const ModelFactory& factory, const std::shared_ptr<Communicator>& world);

}  // namespace partita::cli
