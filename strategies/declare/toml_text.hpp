#pragma once

#include <string>
#include <string_view>

namespace partita {

/// Checks the text of a TOML file before toml++ reads it. Throws Error with file, line and column for a NUL byte, which
/// toml++ takes for the end of the file, and for a key of more than 16 parts: toml++ calls itself for each table in a
/// table, so a key of 40,000 parts would overflow the stack. Everything else that is not TOML is left to toml++.
void check_toml_text(std::string_view text, const std::string& file);

}  // namespace partita
