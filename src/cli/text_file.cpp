#include "text_file.hpp"

#include "partita/base/error.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace partita::cli {

void check_writable(const char* option, const std::string& path) {
  if (std::filesystem::is_directory(path)) fail("{} {}: it is a folder; name a file in it", option, path);
  const auto folder = std::filesystem::absolute(path).parent_path();
  if (access(folder.c_str(), W_OK) != 0)
    fail("{} {}: its folder {} cannot be written: {}", option, path, folder.string(),
         std::generic_category().message(errno));
}

void write_text(const char* option, const std::string& path, const std::string& text) {
  const std::string partial = fmt::format("{}.{}.partial", path, getpid());  // ranks may write the same at once
  std::ofstream out(partial);
  out << text;
  out.close();
  if (!out || std::rename(partial.c_str(), path.c_str()) != 0) {
    const std::string why = std::generic_category().message(errno);
    std::remove(partial.c_str());
    fail("{} {}: it cannot be written: {}", option, path, why);
  }
}

std::string read_text(const char* option, const std::string& path) {
  std::ifstream in(path);
  std::string text;
  if (in) std::getline(in, text, '\0');
  if (!in && !in.eof()) fail("{} {}: it cannot be read: {}", option, path, std::generic_category().message(errno));
  return text;
}

}  // namespace partita::cli
