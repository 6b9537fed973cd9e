#pragma once

#include "src/cli/program/verbs.hpp"

#include <string>
#include <vector>

namespace partita::cli {

/// Returns the manual page of the program in the language of man(7).
std::string print_man_page(const std::string& program, const std::vector<VerbOptions>& verbs);

}  // namespace partita::cli
