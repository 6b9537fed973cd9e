#include "text_file.hpp"

#include "partita/base/error.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace partita::cli {

namespace {

namespace fs = std::filesystem;

std::string reason() { return std::generic_category().message(errno); }

/// The file that a path means, through links, be it there or not.
fs::path meant(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error), real = fs::weakly_canonical(whole, error);
  return error ? whole : real;
}

/// What is there and no file that another could replace; a process's open files, as /dev/stdout, whatever is behind them.
bool is_stream(const std::string& path) {
  for (const char* open : {"/dev/std", "/dev/fd/", "/proc/"})
    if (path.starts_with(open)) return true;
  std::error_code error;
  const fs::file_status there = fs::status(path, error);
  return fs::exists(there) && !fs::is_regular_file(there) && !fs::is_directory(there);
}

void check_writable(const char* option, const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) fail("{} {}: it is a folder; name a file in it", option, path);
  if (is_stream(path)) {
    if (access(path.c_str(), W_OK) != 0) fail("{} {}: it cannot be written: {}", option, path, reason());
    return;
  }
  const fs::path folder = meant(path).parent_path();
  if (access(folder.c_str(), W_OK) != 0)
    fail("{} {}: its folder {} cannot be written: {}", option, path, folder.string(), reason());
  constexpr long beside = 16;  // what a name gets while the file is written: .PID.partial
  if (const long longest = pathconf(folder.c_str(), _PC_NAME_MAX) - beside;
      longest > 0 && static_cast<long>(meant(path).filename().string().size()) > longest)
    fail("{} {}: its name is longer than {} bytes", option, path, longest);
}

}  // namespace

bool same_file(const std::string& one, const std::string& other) {
  return !is_stream(one) && !is_stream(other) && meant(one) == meant(other);
}

void check_writable(std::initializer_list<NamedFile> files) {
  for (auto file = files.begin(); file != files.end(); ++file) {
    const auto& [option, path] = *file;
    if (path.empty()) continue;
    check_writable(option, path);
    for (auto other = files.begin(); other != file; ++other)
      if (!other->second.empty() && same_file(other->second, path))
        fail("{} and {} both name {}", other->first, option, path);
  }
}

void write_text(const char* option, const std::string& path, const std::string& text) {
  const bool stream = is_stream(path);
  const std::string real = stream ? path : meant(path).string();
  const std::string partial =
      stream ? path : fmt::format("{}.{}.partial", real, getpid());  // ranks may write the same at once
  std::fflush(stdout);                                               // which may be the stream
  std::ofstream out(partial, stream ? std::ios::app : std::ios::trunc);
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
