#include "src/system/open_locked.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace partita {

namespace {

/// Returns true if `path` names the open file.
bool has_name(const std::string& path, int file) {
  struct stat opened, there;
  return fstat(file, &opened) == 0 && lstat(path.c_str(), &there) == 0 && opened.st_ino == there.st_ino &&
         opened.st_dev == there.st_dev;
}

}  // namespace

int open_locked(const std::string& path, mode_t mode) {
  while (true) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode);
    if (file < 0) return -1;
    struct flock whole {};
    whole.l_type = F_WRLCK;
    if (fcntl(file, F_OFD_SETLK, &whole) != 0 && (errno == EAGAIN || errno == EACCES)) {
      close(file);
      errno = EWOULDBLOCK;
      return -1;
    }
    if (has_name(path, file)) return file;
    close(file);
  }
}

}  // namespace partita
