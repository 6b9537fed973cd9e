#pragma once

#include "partita/comm/communicator.hpp"

#include <memory>

namespace partita {

/// A network to pretend: a communication that was started completes no sooner than latency + bytes/bandwidth later.
struct Delay {
  double latency = 0;    ///< seconds a verb
  double bandwidth = 0;  ///< bytes a second that this rank receives (exchange) or reduces; 0: unlimited
};

/// A decorator that delays the end of a communication, not its start: computation between the two hides the delay.
/// @pre `inner` outlives the decorator.
std::shared_ptr<Communicator> delaying(Communicator& inner, Delay delay);
/// A decorator that shares the ownership of `inner`.
std::shared_ptr<Communicator> delaying(std::shared_ptr<Communicator> inner, Delay delay);

}  // namespace partita
