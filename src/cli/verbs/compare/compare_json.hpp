#pragma once

#include "src/cli/files/json.hpp"
#include "src/cli/inputs/machine_files.hpp"
#include "src/cli/output/compared.hpp"

#include <vector>

namespace partita::cli {

/// The document that `compare --json` writes. `limit` is the memory limit of a rank in bytes; 0 if there is none.
Json to_json(const Options& options, const MachineFiles& files, const std::vector<Compared>& all, Index limit);

}  // namespace partita::cli
