#include "src/cli/support/lasting_output.hpp"

#include "src/cli/support/text_file.hpp"

#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace partita::cli {

namespace {

/// Writes to standard output. Always returns `size`, so that the stream never fails.
ssize_t write_or_complain(void*, const char* text, size_t size) {
  static bool complained = false;
  if (!write_stream(STDOUT_FILENO, {text, size}) && !std::exchange(complained, true))
    fmt::print(stderr, "partita: standard output cannot be written: {}; the run goes on without it\n", reason());
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
