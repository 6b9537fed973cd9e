#pragma once

#include <string_view>

namespace partita::cli {

/// The exit statuses of a program.
inline constexpr int user_error = 2, run_failed = 3;

/// Prints an error in one line. The lines below the first (a marked excerpt) are printed only on a terminal.
void complain(std::string_view message);
/// Prints a note, unless it is empty.
void print_note(std::string_view note);

}  // namespace partita::cli
