#pragma once

#include "partita/comm/communicator.hpp"

#include <functional>

namespace partita {

/// How long a rank waits for other ranks.
struct WaitLimits {
  int note = 0;  ///< seconds after which it prints for whom it waits, once in each wait; 0: never
  int most = 0;  ///< seconds after which the wait fails; 0: no limit
};

/// A rank has waited longer than WaitLimits::most.
class WaitedTooLong : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

/// Runs `body` on `ranks` threads of this process, for users who want several ranks without MPI. Sums and boxes travel
/// through memory that the ranks share, as between MPI ranks of one node. So results, memory and traffic are those of
/// MPI ranks, bit for bit. Waits have limits. If ranks throw, this rethrows the exception of the lowest rank that
/// failed by itself, not because of another rank. Throws Error if the system cannot start so many threads.
void run_thread_ranks(int ranks, const WaitLimits& limits, const std::function<void(Communicator&)>& body);

}  // namespace partita
