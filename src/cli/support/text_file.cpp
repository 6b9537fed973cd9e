#include "src/cli/support/text_file.hpp"

#include "partita/base/error.hpp"
#include "partita/base/real_path.hpp"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace partita::cli {

namespace {

namespace fs = std::filesystem;

std::string reason() { return std::generic_category().message(errno); }

/// The descriptor of a name for an open file, e.g. 1 for /dev/stdout; -1 for other names.
int descriptor_of(const std::string& path) {
  if (path == standard_output) return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    int number = -1;
    if (!path.starts_with(folder)) continue;
    const char *begin = path.data() + folder.size(), *end = path.data() + path.size();
    if (std::from_chars(begin, end, number).ptr == end) return number;
  }
  return -1;
}

/// Writes to the descriptor itself. Opening its name again would write at another position of the file behind it.
bool write_all(int to, std::string_view text) {
  std::fflush(stdout);
  while (!text.empty()) {
    const auto n = ::write(to, text.data(), text.size());
    if (n < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

void check_writable(const char* option, const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) fail("{} {}: it is a folder; name a file in it", option, path);
  if (is_stream(path)) {
    if (access(path.c_str(), W_OK) != 0) fail("{} {}: it cannot be written: {}", option, path, reason());
    return;
  }
  const fs::path folder = fs::path(real_path(path)).parent_path();
  if (access(folder.c_str(), W_OK) != 0)
    fail("{} {}: its folder {} cannot be written: {}", option, path, folder.string(), reason());
  constexpr long beside = 16;  // length of the suffix ".PID.partial" while the file is written
  if (const long longest = pathconf(folder.c_str(), _PC_NAME_MAX) - beside;
      longest > 0 && static_cast<long>(fs::path(real_path(path)).filename().string().size()) > longest)
    fail("{} {}: its name is longer than {} bytes", option, path, longest);
}

}  // namespace

bool is_stream(const std::string& path) {
  if (descriptor_of(path) >= 0) return true;
  std::error_code error;
  const fs::file_status there = fs::status(path, error);
  return fs::exists(there) && !fs::is_regular_file(there) && !fs::is_directory(there);
}

void check_no_stream(const char* option, const std::string& path) {
  if (!path.empty() && is_stream(path)) fail("{} {}: it is not seekable; pass a regular file", option, path);
}

void check_writable(const std::vector<NamedFile>& files, const std::vector<NamedFile>& read) {
  std::vector<NamedFile> others = read;
  for (const auto& [option, path] : files) {
    if (path.empty()) continue;
    check_writable(option, path);
    for (const auto& [other, name] : others)
      if (!name.empty() && !is_stream(name) && real_path(name) == real_path(path))
        fail("{} and {} both name {}", other, option, path);
    if (!is_stream(path)) others.emplace_back(option, path);
  }
}

void write_text(const char* option, const std::string& path, const std::string& text) {
  if (const int open = descriptor_of(path); open >= 0) {
    if (!write_all(open, text)) fail("{} {}: it cannot be written: {}", option, path, reason());
    return;
  }
  const bool stream = is_stream(path);
  const std::string real = stream ? path : real_path(path);
  const std::string partial =
      stream ? path : fmt::format("{}.{}.partial", real, getpid());  // several ranks may write the file at once
  std::ofstream out(partial);
  out << text;
  out.close();
  if (out && (stream || std::rename(partial.c_str(), real.c_str()) == 0)) return;
  const std::string why = reason();
  if (!stream) std::remove(partial.c_str());
  fail("{} {}: it cannot be written: {}", option, path, why);
}

std::string read_text(const char* option, const std::string& path) {
  std::ifstream in(path);
  std::string text;
  if (in) std::getline(in, text, '\0');
  if (!in && !in.eof()) fail("{} {}: it cannot be read: {}", option, path, reason());
  return text;
}

}  // namespace partita::cli
