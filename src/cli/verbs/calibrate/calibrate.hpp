#pragma once

#include "src/cli/support/options.hpp"

#include <memory>

namespace partita::cli {

/// Runs the verb `calibrate` on the ranks of `world` and returns the exit status.
/// Collective: every rank of `world` calls it.
int calibrate(const Options& options, const ModelFactory& factory, const std::shared_ptr<Communicator>& world);

}  // namespace partita::cli
