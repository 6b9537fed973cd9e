#pragma once

#include "src/comm/job/mpi_launcher.hpp"

#include <sys/types.h>

namespace partita {

/// A child process of a rank that reports if the rank dies. When a launcher loses one rank, it kills the others at once
/// and may name any of them, so no rank is left to say which one died first. The witness does not belong to the job.
/// It waits for a robust mutex that its rank holds; when the rank dies, the kernel gives the mutex to the witness. The
/// witness also keeps the files of its rank open. The launcher notices a death when these files close, so it notices
/// only after the witness has printed its message. Among the witnesses of one job on one node, only the first one
/// prints. If the launcher itself has died, the witness says that instead.
class Witness {
 public:
  /// Forks the child process. Call it before MPI starts, as MPI requires, and on the thread that ends last, because the
  /// end of a thread releases the mutexes that it holds, which would look like a death.
  Witness();
  /// The rank ends normally: the witness exits without a message.
  ~Witness();
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

  /// Tells the witness the number of its rank.
  void introduce(int rank);
  /// Tells the witness that the rank is about to exit because it waited `seconds` seconds. The witness then reports
  /// this instead of a death. Returns false if there is no witness process.
  bool waited(int seconds);
  /// Returns true if the launcher of the job has died.
  bool launcher_died() const { return launcher_.died(); }
  /// Ends the witness: it no longer reports the end of this process.
  void dismiss();
  /// Silences the witnesses of all ranks on this node. The rank is about to abort the job and prints the reason itself,
  /// so no witness shall report the ranks that the launcher then kills.
  void dismiss_all();

 private:
  struct Shared;
  [[noreturn]] static void watch(Shared& rank, pid_t process, const MpiLauncher& launcher, int launcher_error);

  MpiLauncher launcher_;
  Shared* shared_ = nullptr;  // memory that the rank and the witness share
  pid_t child_ = -1;
};

}  // namespace partita
