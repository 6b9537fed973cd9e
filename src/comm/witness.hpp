#pragma once

#include <sys/types.h>

namespace partita {

/// What is said of a rank that waited so many seconds.
inline constexpr char waited_too_long[] =
    "has waited {} s for other ranks: one of them, its host or the link to it is gone, or --timeout is too short";

/// A child process that tells which rank died. A launcher that loses one rank kills the others at once and names any of
/// them, so nobody in the job is left to say who was first; the witness is no part of the job. It waits for a robust
/// mutex that its rank holds, which the kernel hands on when the rank dies, and shares its rank's files: the launcher,
/// which notices a death by their end, notices only after the witness has spoken and closed them.
/// Of the witnesses of one launcher on one node only the first speaks.
class Witness {
 public:
  /// Forks; before MPI starts, as MPI asks. On the thread that ends last, since a thread's end frees its mutexes.
  Witness();
  /// The rank ends in order: the witness goes silently.
  ~Witness();
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

  /// Tells the witness whom it watches.
  void introduce(int rank);
  /// The rank is about to leave because it waited so long: the witness says this instead of a death. False if there is no
  /// process to say it.
  bool waited(int seconds);
  /// From here on this process's end is no news.
  void dismiss();
  /// The rank is about to abort the job, and has said why: nor are the ends of the others that the launcher now kills.
  void dismiss_all();

 private:
  struct Shared;
  [[noreturn]] static void watch(Shared& rank, pid_t process, pid_t launcher);

  Shared* shared_ = nullptr;  // with the child
  pid_t child_ = -1;
};

}  // namespace partita
