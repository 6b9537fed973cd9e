#pragma once

#include "src/cli/program/verbs.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace partita::cli {

/// Returns a script that completes the program's command line in a shell, "bash" or "zsh". Throws Error for another
/// shell.
std::string print_completion(std::string_view shell, const std::string& program, const std::vector<VerbOptions>& verbs);

}  // namespace partita::cli
