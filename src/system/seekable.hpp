#pragma once

#include "partita/base/error.hpp"

#include <filesystem>
#include <string>
#include <system_error>

namespace partita {

/// False for a pipe, a device or a socket, which cannot be read or written at any place. True if there is no file.
inline bool is_seekable(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status there = std::filesystem::status(path, error);
  return !std::filesystem::exists(there) || std::filesystem::is_regular_file(there) ||
         std::filesystem::is_directory(there);
}

/// Throws Error if a file cannot be read at any place. To open a pipe would wait for a writer.
inline void check_seekable(const std::string& path) {
  if (!is_seekable(path)) fail("'{}' is not seekable; give a regular file", path);
}

}  // namespace partita
