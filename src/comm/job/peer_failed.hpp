#pragma once

#include "partita/comm/communicator.hpp"

namespace partita {

/// Thrown on a rank because another rank failed. The exception of the other rank is the one to report.
class PeerFailed : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

}  // namespace partita
