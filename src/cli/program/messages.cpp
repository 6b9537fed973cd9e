#include "src/cli/program/messages.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace partita::cli {

void complain(std::string_view message) {
  const auto shown = isatty(STDERR_FILENO) != 0 ? message : message.substr(0, message.find('\n'));
  std::fputs(fmt::format("partita: {}\n", shown).c_str(), stderr);  // fmt::print would throw if that is full
  std::fflush(stderr);
}

void print_note(std::string_view note) {
  if (!note.empty()) std::fputs(fmt::format("note: {}\n", note).c_str(), stderr);
}

}  // namespace partita::cli
