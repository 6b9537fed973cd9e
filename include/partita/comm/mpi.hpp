#pragma once

#include "partita/comm/communicator.hpp"

#include <memory>
#include <string>

namespace partita {

class Context;
class Watchdog;
class Witness;

/// MPI's initialisation and finalisation; one object, first in main and last to go.
class MpiSession {
 public:
  /// Initialises MPI (unless somebody has) so that errors return to us.
  MpiSession(int& argc, char**& argv);
  /// Finalises MPI if this object initialised it. Where MPI_Finalize does not return the process leaves without it.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  /// All ranks of the job.
  std::shared_ptr<Communicator> world() const { return world_; }
  /// From here on a rank that waits for others longer than so many seconds says so and ends the job: MPI itself waits
  /// for ever for a peer whose host or link is gone. 0: no limit, as before the call.
  void limit_waiting(int seconds);
  /// Tells what the process is going to return, and returns it: known where the process must leave without MPI_Finalize.
  int returns(int status) { return status_ = status; }
  /// Prints `message` with this rank's number on standard error and takes the whole job down with `status`.
  [[noreturn]] void abort(const std::string& message, int status) const;

 private:
  void finalize();

  bool ours_ = false;
  int status_ = 0;
  std::unique_ptr<Witness> witness_;
  std::shared_ptr<Context> context_;
  std::unique_ptr<Watchdog> watchdog_;
  std::shared_ptr<Communicator> world_;
};

/// MPI's own name and version for --version.
std::string mpi_version();

}  // namespace partita
