#pragma once

#include <string>

namespace partita::cli {

// Files that an option names; errors begin with it.

/// Better now than after hours of work. Throws Error if `path` cannot be written.
void check_writable(const char* option, const std::string& path);
/// Written beside and renamed, so that neither a crash nor another rank leaves half of it. Throws Error.
void write_text(const char* option, const std::string& path, const std::string& text);
/// Throws Error.
std::string read_text(const char* option, const std::string& path);

}  // namespace partita::cli
