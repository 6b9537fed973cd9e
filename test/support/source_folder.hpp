#pragma once

#include <cstdlib>
#include <filesystem>

namespace partita::test {

/// The top folder of the sources. The build sets PARTITA_SOURCE; to run a test by hand, start in the top folder.
inline std::filesystem::path source_folder() {
  const char* source = std::getenv("PARTITA_SOURCE");
  return source == nullptr ? "." : source;
}

}  // namespace partita::test
