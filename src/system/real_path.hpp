#pragma once

#include "partita/base/error.hpp"

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

namespace partita {

/// Returns the absolute path of the file that `path` names, with all symbolic links resolved. The file need not exist.
/// A program that writes a temporary file beside this path and renames it leaves the links intact. Throws Error if the
/// links lead in a circle, or are more than the 40 that Linux follows.
inline std::string real_path(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr int most_links = 40;  // the limit of Linux
  std::error_code error;
  fs::path at = fs::absolute(path, error);
  for (int links = 0; fs::is_symlink(fs::symlink_status(at, error)); ++links) {
    if (links == most_links) fail("{}: {}", path, std::generic_category().message(ELOOP));
    at = at.parent_path() / fs::read_symlink(at, error);  // an absolute link replaces the whole path
  }
  const fs::path real = fs::weakly_canonical(at, error);
  return (error ? at : real).string();
}

}  // namespace partita
