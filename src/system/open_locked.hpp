#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace partita {

/// Opens a file for reading and writing, creates it if it is missing, and locks it. The lock excludes every other call
/// of this function for the same file, in this and in other processes, until the descriptor is closed or the process
/// ends. Returns the descriptor. On failure returns -1 and sets errno; EWOULDBLOCK means that someone else holds the
/// lock. The locked file is the one that `path` names when the function returns: if another process removes or renames
/// the file between opening and locking, the function tries again. A symbolic link is not followed: errno is then
/// ELOOP. `mode` are the permissions of a file that the function creates, less those of the umask. A file system
/// without locks gives an unlocked descriptor. The lock is an OFD lock (fcntl(2)). It does not interact with the
/// flock() locks that HDF5 takes for reading.
int open_locked(const std::string& path, mode_t mode = 0666);

/// The reason in the message of a writer that could not lock its file.
inline constexpr std::string_view being_written = "another run is writing it now";

}  // namespace partita
