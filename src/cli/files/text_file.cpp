#include "src/cli/files/text_file.hpp"

#include "partita/base/error.hpp"
#include "src/base/launched_rank.hpp"
#include "src/system/real_path.hpp"
#include "src/system/seekable.hpp"
#include "src/system/system_file.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sys/types.h>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

namespace partita::cli {

namespace {

namespace fs = std::filesystem;

/// The descriptor of a name for an open file, e.g. 1 for /dev/stdout; -1 for other names.
int descriptor_of(const std::string& path) {
  if (path == "/dev/stdin") return STDIN_FILENO;
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

/// Writes a new file beside `path` and puts it in its place, with the permissions of the one that was there. Throws
/// Error with the system's reason.
void replace_file(const std::string& path, std::string_view text) {
  const std::string partial = fmt::format("{}.{}.partial", path, getpid());  // several ranks may write it at once
  std::remove(partial.c_str());                                              // what a killed process left, or a link
  try {
    const Descriptor file(open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    struct stat there {};
    if (stat(path.c_str(), &there) == 0 && fchmod(file, there.st_mode & 07777) != 0) fail_system();
    write_all(file, std::as_bytes(std::span(text)), 0);
    if (std::rename(partial.c_str(), path.c_str()) != 0) fail_system();
  } catch (const Error&) {
    std::remove(partial.c_str());
    throw;
  }
}

/// Throws Error if the file that is there is surely of another kind: HDF5, or no JSON where JSON is written.
void check_kind(const NamedFile& named) {
  std::array<char, 4> begin{};
  std::ifstream file(named.path, std::ios::binary);
  file.read(begin.data(), begin.size());
  const std::string_view text(begin.data(), static_cast<std::size_t>(file.gcount()));
  const auto first = text.find_first_not_of(" \t\r\n");
  std::string_view what;
  if (named.kind != FileKind::checkpoint && text == "\x89HDF")
    what = "a checkpoint or another HDF5 file";
  else if (named.kind == FileKind::json && first != std::string_view::npos && text[first] != '{' && text[first] != '[')
    what = "not JSON";
  if (!what.empty())
    fail("{} {}: the file there is {}, so it is not replaced; give another name, or remove it", named.option,
         named.path, what);
}

void check_writable(const NamedFile& named) {
  const auto& [option, path, kind] = named;
  std::error_code error;
  if (fs::is_directory(path, error)) fail("{} {}: it is a folder; name a file in it", option, path);
  if (is_stream(path)) {
    if (access(path.c_str(), W_OK) != 0) fail("{} {}: it cannot be written: {}", option, path, reason());
    return;
  }
  check_kind(named);
  const fs::path folder = fs::path(real_path(path)).parent_path();
  if (access(folder.c_str(), W_OK) != 0)
    fail("{} {}: its folder {} cannot be written: {}", option, path, folder.string(), reason());
  constexpr long beside = 16;  // length of the suffix ".PID.partial" while the file is written
  if (const long longest = pathconf(folder.c_str(), _PC_NAME_MAX) - beside;
      longest > 0 && static_cast<long>(fs::path(real_path(path)).filename().string().size()) > longest)
    fail("{} {}: its name is longer than {} bytes", option, path, longest);
}

}  // namespace

std::string reason() { return std::generic_category().message(errno); }

bool write_stream(int to, std::string_view text) {
  while (!text.empty()) {
    const auto n = ::write(to, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {  // another program has made it non-blocking
      pollfd wait{to, POLLOUT, 0};
      poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool is_stream(const std::string& path) { return descriptor_of(path) >= 0 || !is_seekable(path); }

void check_no_stream(const char* option, const std::string& path) {
  if (!path.empty() && is_stream(path)) fail("{} {}: it is not seekable; pass a regular file", option, path);
}

void check_readable_by_all(const std::vector<NamedFile>& files) {
  const int processes = launched_processes().number;
  for (const auto& [option, path, kind] : files)
    if (processes > 1 && !path.empty() && is_stream(path))
      fail("{} {}: {} processes were started, and they cannot all read it; pass a regular file", option, path,
           processes);
}

void check_writable(const std::vector<NamedFile>& files, const std::vector<NamedFile>& read) {
  std::vector<NamedFile> others = read;
  for (const NamedFile& file : files) {
    if (file.path.empty()) continue;
    std::error_code error;
    static_cast<void>(fs::status(file.path, error));
    if (error == std::errc::too_many_symbolic_link_levels)
      fail("{} {}: {}; it is a link that leads back to itself; remove it", file.option, file.path, error.message());
    for (const NamedFile& other : others)
      if (!other.path.empty() && !is_stream(other.path) && real_path(other.path) == real_path(file.path))
        fail("{} and {} both name {}", other.option, file.option, file.path);
    check_writable(file);
    if (!is_stream(file.path)) others.push_back(file);
  }
}

void write_text(const char* option, const std::string& path, const std::string& text) {
  try {
    const int open_already = descriptor_of(path);
    if (!is_stream(path)) return replace_file(real_path(path), text);
    std::fflush(stdout);
    // Opening the name of an open file again would write at another position of the file behind it.
    std::optional<Descriptor> opened;
    if (open_already < 0) opened.emplace(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!write_stream(open_already < 0 ? static_cast<int>(*opened) : open_already, text)) fail_system();
  } catch (const Error& error) {
    fail("{} {}: it cannot be written: {}", option, path, error.what());
  }
}

std::string read_text(const char* option, const std::string& path) {
  try {
    return read_everything(path);
  } catch (const Error& error) {
    fail("{} {}: it cannot be read: {}", option, path, error.what());
  }
}

namespace {

/// Writes to standard output. Always returns `size`, so that the stream never fails.
ssize_t write_or_complain(void*, const char* text, size_t size) {
  static bool complained = false;
  if (!write_stream(STDOUT_FILENO, {text, size}) && !std::exchange(complained, true))
    fmt::print(stderr, "partita: standard output cannot be written: {}; the run goes on without it\n", reason());
  return static_cast<ssize_t>(size);
}

}  // namespace

void outlast_full_output() {
  FILE* lasting = fopencookie(nullptr, "w", {nullptr, write_or_complain, nullptr, nullptr});
  if (lasting == nullptr) return;
  std::setvbuf(lasting, nullptr, isatty(STDOUT_FILENO) != 0 ? _IOLBF : _IOFBF, BUFSIZ);
  std::fflush(stdout);
  stdout = lasting;
}

}  // namespace partita::cli
