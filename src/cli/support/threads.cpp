#include "src/cli/support/threads.hpp"

#include "partita/base/error.hpp"
#include "partita/base/host.hpp"

namespace partita::cli {

void check_threads(int threads) {
  constexpr int most_per_core = 8;
  const int cores = allowed_cores();
  if (threads < 1) fail("--threads {}: it must be 1 or more", threads);
  if (threads > most_per_core * cores)
    fail("--threads {}: a rank may use {}, and more than {} threads a core only wait for each other; give {} or less",
         threads, counted(cores, "core"), most_per_core, most_per_core * cores);
}

std::string threads_note(int threads) {
  const int cores = allowed_cores();
  if (threads <= cores) return "";
  return fmt::format("--threads {}: a rank may use only {}; more threads than cores make it slower", threads,
                     counted(cores, "core"));
}

}  // namespace partita::cli
