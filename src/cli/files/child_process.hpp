#pragma once

#include <functional>
#include <string>
#include <vector>

namespace partita::cli {

/// How a child process ended.
struct ChildEnd {
  int status = 0;       ///< exit status; 128 + N if signal N ended the child, as in a shell
  std::string message;  ///< last lines on standard error, or on standard output if standard error is empty
};

/// How long to wait for a launcher that writes errors while no rank has written anything. (The launcher of MPICH waits
/// without limit for a host that it could not reach.)
struct Patience {
  double seconds = 0;                                           ///< time until the launcher is ended; 0: no limit
  std::function<void(const std::string& message)> complains{};  ///< called once, after a few seconds, with its errors
};

/// Runs a program with arguments (`words`) and waits for its end. The program is searched in PATH. It gets no input,
/// its output goes to files in `folder`, and it receives SIGTERM when this process dies. Throws Error if it cannot be
/// started.
ChildEnd run_child(const std::vector<std::string>& words, const std::string& folder, const Patience& patience = {});

/// Returns the path of a program: the name itself if it has a slash, else the first executable file of that name in
/// PATH. Returns "" if there is none.
std::string find_program(const std::string& name);

}  // namespace partita::cli
