#pragma once

#include "partita/comm/communicator.hpp"

#include <memory>

namespace partita {

/// A simulated network: a communication completes no earlier than latency + bytes/bandwidth after its start.
struct Delay {
  double latency = 0;    ///< seconds per operation
  double bandwidth = 0;  ///< bytes per second that this rank receives or reduces; 0: unlimited
};

/// Returns a decorator of `inner` that delays waiting, not starting. So computation between start and wait hides the
/// communication.
/// @pre `inner` outlives the decorator.
std::shared_ptr<Communicator> delaying(Communicator& inner, Delay delay);
/// Returns a delaying decorator that shares the ownership of `inner`.
std::shared_ptr<Communicator> delaying(std::shared_ptr<Communicator> inner, Delay delay);

}  // namespace partita
