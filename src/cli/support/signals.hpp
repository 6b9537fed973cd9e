#pragma once

#include "partita/train/run/trainer.hpp"

#include <csignal>

namespace partita::cli {

/// While it exists, SIGTERM and SIGUSR1 do not end the process: SIGTERM asks the training to save and stop, SIGUSR1 to
/// save. Make one at a time, on every rank: a batch system may signal any of them.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// Returns what the signals since the last call asked for.
  static Requests take();

 private:
  struct sigaction old_term_ {
  }, old_user_{};
};

}  // namespace partita::cli
