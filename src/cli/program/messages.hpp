#pragma once

#include <string>
#include <string_view>

namespace partita::cli {

/// The exit statuses of a program.
inline constexpr int user_error = 2, run_failed = 3;

/// What the present exception says, and the exit status of a program that ends for it.
struct Failure {
  std::string message;
  int status = 1;
};
/// @pre A catch block calls it.
Failure present_failure();

/// Prints an error in one line. The lines below the first (a marked excerpt) are printed only on a terminal.
void complain(std::string_view message);
/// Prints a note, unless it is empty.
void print_note(std::string_view note);

}  // namespace partita::cli
