#pragma once

#include <string>

namespace partita::cli {

/// Throws Error if `threads` is below 1 or above eight times the cores that this process may use. So many threads wait
/// for each other most of the time, and a system may refuse to start them.
void check_threads(int threads);
/// Returns a note if there are more threads than cores, else "".
std::string threads_note(int threads);

}  // namespace partita::cli
