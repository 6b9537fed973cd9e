#pragma once

#include "partita/comm/communicator.hpp"

#include <memory>
#include <string>

namespace partita {

class Witness;

/// MPI's initialisation and finalisation; one object, first in main and last to go.
class MpiSession {
 public:
  /// Initialises MPI (unless somebody has) so that errors return to us.
  MpiSession(int& argc, char**& argv);
  /// Finalises MPI if this object initialised it.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  /// All ranks of the job.
  std::shared_ptr<Communicator> world() const { return world_; }
  /// Prints `message` with this rank's number on standard error and takes the whole job down with `status`.
  [[noreturn]] void abort(const std::string& message, int status) const;

 private:
  bool ours_ = false;
  std::unique_ptr<Witness> witness_;
  std::shared_ptr<Communicator> world_;
};

/// MPI's own name and version for --version.
std::string mpi_version();

}  // namespace partita
