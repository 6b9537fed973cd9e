#pragma once

#include "partita/comm/communicator.hpp"

#include <functional>

namespace partita {

/// Runs `body` on `ranks` threads of this process, each with its own rank of one communicator: for tests, sanitizers
/// and tools. Messages are buffered; the collectives are the textbook ones over `exchange`. If a rank throws, the
/// others' pending communication fails and the exception of the lowest rank that failed first is rethrown here.
void run_threads(int ranks, const std::function<void(Communicator&)>& body);

}  // namespace partita
