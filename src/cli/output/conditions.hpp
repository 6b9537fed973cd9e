#pragma once

#include <string>

namespace partita::cli {

/// Where and when a measurement is made. Results store this beside every number.
struct Conditions {
  std::string processor;  ///< name of the processor, as the system gives it
  int cores = 1;          ///< cores that this process may use
  std::string mpi;        ///< name and version of the MPI library
  std::string date;       ///< date and time in UTC, e.g. "2026-11-22T05:40:00Z"
};

/// The conditions here and now.
Conditions present_conditions();

}  // namespace partita::cli
