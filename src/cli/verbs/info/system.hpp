#pragma once

#include "src/cli/verbs/info/facts.hpp"

namespace partita::cli {

/// Processor and cores, memory with the limit of a container, and GPUs.
FactGroup hardware();
/// Limits and folders that runs depend on: open files, locked memory, shared memory, the folder of measured kernels,
/// the folder for temporary files.
FactGroup limits();
/// The environment variables that are set and that change what Partita, MPI, OpenMP, oneDNN or HDF5 do. Values of
/// variables that may hold secrets are never among them.
FactGroup environment();

}  // namespace partita::cli
