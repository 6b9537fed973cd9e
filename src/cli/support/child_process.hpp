#pragma once

#include <functional>
#include <string>
#include <vector>

namespace partita::cli {

/// How a child process ended.
struct ChildEnd {
  int status = 0;       ///< its exit status; 128 + N where signal N ended it, as a shell tells it
  std::string message;  ///< the last lines that it wrote on standard error, or else on standard output
};

/// What to do with a launcher that complains while no rank has written anything: MPICH's waits for ever for a host that it could
/// not reach.
struct Patience {
  double seconds = 0;                                           ///< until it is ended; 0: never
  std::function<void(const std::string& message)> complains{};  ///< is told what it says, once, after a few seconds
};

/// Runs `words`, a program (looked for in PATH) with its arguments, and waits for its end. It reads nothing, what it writes
/// goes to files in `folder`, and it is told to end (SIGTERM) when this process dies. Throws Error if it cannot be started.
ChildEnd run_child(const std::vector<std::string>& words, const std::string& folder, const Patience& patience = {});

/// The file that a program's name stands for: itself if it has a slash, else the first in PATH that can be executed; "" for
/// none.
std::string find_program(const std::string& name);

}  // namespace partita::cli
