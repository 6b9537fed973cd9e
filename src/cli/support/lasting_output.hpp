#pragma once

namespace partita::cli {

/// Lets the process go on when standard output cannot be written, e.g. because a disk is full: says so once on standard
/// error and drops the text. A long run must not end, and lose its work, because nobody can read its progress. Call it
/// before anything is printed.
void outlast_full_output();

}  // namespace partita::cli
