#pragma once

#include "src/comm/shared_memory/shared_memory.hpp"

#include "partita/comm/communicator.hpp"

#include <memory>

namespace partita {

/// Reserves memory for the collectives of ranks that are threads of one process; null for a single rank. Throws Error
/// on every rank if the system has none left. Collective: every rank of `threads` calls it.
std::unique_ptr<SharedMemory> share_between_threads(Communicator& threads);

}  // namespace partita
