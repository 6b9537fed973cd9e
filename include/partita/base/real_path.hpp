#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace partita {

/// The absolute path of the file that `path` means: where links lead, even if nothing is there yet. Writing beside it and
/// renaming leaves the links as they are.
inline std::string real_path(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr int most_links = 40;  // as the system follows
  std::error_code error;
  fs::path at = fs::absolute(path, error);
  for (int links = 0; links < most_links && fs::is_symlink(fs::symlink_status(at, error)); ++links)
    at = at.parent_path() / fs::read_symlink(at, error);  // an absolute link replaces all
  const fs::path real = fs::weakly_canonical(at, error);
  return (error ? at : real).string();
}

}  // namespace partita
