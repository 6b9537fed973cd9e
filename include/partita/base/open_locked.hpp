#pragma once

#include <string>

namespace partita {

/// Opens a file for reading and writing, made where it is missing, and locks it against all other openings by this function, here and in
/// other processes, until the descriptor is closed or its process ends; not where the file system has no locks. What is locked has the
/// name: another one may have removed or renamed what was opened first. Returns the descriptor, or -1 and errno: EWOULDBLOCK where
/// another one holds the lock. (An OFD lock, fcntl(2); flock()'s, which HDF5 takes when it reads, are others.)
int open_locked(const std::string& path);

}  // namespace partita
