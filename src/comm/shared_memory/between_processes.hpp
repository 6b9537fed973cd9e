#pragma once

#include "src/comm/shared_memory/shared_memory.hpp"

#include <mpi.h>

#include <ctime>
#include <memory>
#include <string>

namespace partita {

/// Removes the files of segments in a folder that ranks have left behind: those that were killed between creating a
/// segment and removing its name. A living rank locks its file; a file younger than `seconds` may not be locked yet.
void remove_abandoned_segments(const std::string& folder, std::time_t seconds);

/// What share_between_processes() returns.
struct SharedByProcesses {
  std::unique_ptr<SharedMemory> memory;
  bool failed = false;  ///< there is none because it could not be reserved
};

/// Reserves memory that the processes of `comm` share. There is none if a rank passes `wanted` false. All ranks get the
/// same answer. Collective: every rank of `comm` calls it.
/// @pre `comm` has several ranks, which are on one node.
SharedByProcesses share_between_processes(MPI_Comm comm, bool wanted);

}  // namespace partita
