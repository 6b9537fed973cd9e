#pragma once

#include <string>

namespace partita::cli {

/// Where and when a measurement is made: what has to stand beside every number.
struct Conditions {
  std::string processor;  ///< as the system names it
  int cores = 1;          ///< that this process may use
  std::string mpi;        ///< name and version
  std::string date;       ///< of UTC, e.g. "2026-11-22T05:40:00Z"
};

Conditions present_conditions();

}  // namespace partita::cli
