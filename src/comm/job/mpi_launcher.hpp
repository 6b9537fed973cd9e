#pragma once

#include <sys/types.h>

#include <array>

namespace partita {

/// The processes on this node that started this rank and keep its job alive, e.g. hydra_pmi_proxy and mpiexec. There
/// are none if no launcher started the rank.
class MpiLauncher {
 public:
  /// Finds them among the ancestors of this process.
  MpiLauncher();

  /// Returns true if one of them has died. It is safe to call after a fork.
  bool died() const;
  /// Returns the process number of the outermost of them, or 0.
  pid_t process() const { return count_ > 0 ? processes_[count_ - 1] : 0; }
  /// Returns a file descriptor for the standard error of that process, or -1. The rank's own standard error often goes
  /// through the launcher, so it leads nowhere when the launcher has died.
  int open_standard_error() const;
  /// Returns a number that is the same for all ranks of the job on this node, and differs from those of other jobs.
  unsigned long job() const { return job_; }

 private:
  static constexpr int most = 4;

  std::array<pid_t, most> processes_{};  // innermost first
  int count_ = 0;
  unsigned long job_ = 0;
};

}  // namespace partita
