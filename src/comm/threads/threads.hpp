#pragma once

#include "partita/comm/communicator.hpp"

#include <functional>

namespace partita {

/// Runs `body` on `ranks` threads of this process, for tests, sanitizers and tools; run_thread_ranks() is for users.
/// Each thread is one rank of a common communicator. Messages are buffered, and the collectives are the textbook
/// collectives.
/// If a rank throws, the pending communication of the other ranks fails. After all ranks have ended, the exception of
/// the lowest rank that failed by itself, not because of another rank, is rethrown. Throws Error if the system cannot
/// start so many threads.
void run_threads(int ranks, const std::function<void(Communicator&)>& body);

}  // namespace partita
