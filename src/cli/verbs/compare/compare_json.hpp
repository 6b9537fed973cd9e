#pragma once

#include "src/cli/support/compared.hpp"
#include "src/cli/support/json.hpp"
#include "src/cli/support/machine_files.hpp"

#include <vector>

namespace partita::cli {

/// The document that `compare --json` writes. `limit` is the memory limit of a rank in bytes; 0 if there is none.
Json to_json(const Options& options, const MachineFiles& files, const std::vector<Compared>& all, Index limit);

}  // namespace partita::cli
