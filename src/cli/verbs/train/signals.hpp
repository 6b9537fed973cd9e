#pragma once

#include "partita/train/trainer/trainer.hpp"

#include <csignal>

namespace partita::cli {

/// While it exists, a signal does not end the process: SIGTERM asks the training to save and stop, SIGUSR1 to save.
/// Make one at a time for each of the two, on every rank: a batch system may signal any of them. Ranks that are threads
/// share what came.
class SignalWatch {
 public:
  /// `number` is SIGTERM or SIGUSR1.
  explicit SignalWatch(int number);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// Returns what both signals asked for since the last call, on any rank of the process.
  static Requests take();

 private:
  int number_;
};

}  // namespace partita::cli
