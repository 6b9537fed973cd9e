#pragma once

#include "partita/comm/communicator.hpp"

#include <memory>
#include <string>

// Ranks that are processes. A build without MPI has these functions too; a session throws Error.

namespace partita {

/// Initializes and finalizes MPI. A program makes one object, first in main, so that it is destroyed last. An exception
/// that nobody catches ends the whole job with its message.
class MpiSession {
 public:
  /// Initializes MPI unless it is initialized. MPI calls then return error codes instead of ending the process. Throws
  /// Error if this build has no MPI.
  MpiSession(int& argc, char**& argv);
  /// Finalizes MPI if this object initialized it. If MPI_Finalize hangs, the process exits without it.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  /// All ranks of the job.
  std::shared_ptr<Communicator> world() const;
  /// Limits the time of each wait for other ranks. A rank that waits longer prints a message and ends the job. MPI
  /// itself waits forever for a peer whose host or network link has failed. 0 means no limit, which is the default.
  void limit_waiting(int seconds);
  /// Lets a rank that has waited `seconds` seconds for other ranks print for whom and in which layer, once in each
  /// wait; it goes on waiting. 0 means never, which is the default.
  void note_waiting(int seconds);
  /// Records the exit status of the process and returns it. The destructor uses it if it must exit without
  /// MPI_Finalize.
  int returns(int status);
  /// Prints `message` with this rank's number on standard error and ends the whole job with exit status `status`.
  [[noreturn]] void abort(const std::string& message, int status) const;

 private:
  struct State;
  void finalize();

  std::unique_ptr<State> state_;
};

/// Returns true if this build has MPI.
bool have_mpi();
/// Says, for the end of an error message, how to start `ranks` ranks.
std::string how_to_start(int ranks);
/// Returns the name and version of the MPI library, for --version; "" if this build has none.
std::string mpi_version();

}  // namespace partita
