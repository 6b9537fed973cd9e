#include "src/cli/support/lasting_output.hpp"

#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace partita::cli {

namespace {

/// Writes to standard output. Always returns `size`, so that the stream never fails.
ssize_t write_or_complain(void*, const char* text, size_t size) {
  static bool complained = false;
  for (size_t done = 0; done < size;) {
    const ssize_t n = ::write(STDOUT_FILENO, text + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      if (!complained)
        fmt::print(stderr, "partita: standard output cannot be written: {}; the run goes on without it\n",
                   std::strerror(errno));
      complained = true;
      break;
    }
    done += static_cast<size_t>(n);
  }
  return static_cast<ssize_t>(size);
}

}  // namespace

void outlast_full_output() {
  FILE* lasting = fopencookie(nullptr, "w", {nullptr, write_or_complain, nullptr, nullptr});
  if (lasting == nullptr) return;
  std::setvbuf(lasting, nullptr, isatty(STDOUT_FILENO) != 0 ? _IOLBF : _IOFBF, BUFSIZ);
  std::fflush(stdout);
  stdout = lasting;
}

}  // namespace partita::cli
