#pragma once

#include "src/cli/verbs/info/facts.hpp"

namespace partita::cli {

/// Versions of Partita, of the compiler and of the libraries. For MPI, HDF5, oneDNN and zlib it is the library that
/// runs.
FactGroup versions();
/// The options that the build was configured with.
FactGroup build_options();

}  // namespace partita::cli
