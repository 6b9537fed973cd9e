#pragma once

#include "partita/base/error.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>

namespace partita {

/// Throws Error with the reason why the last system call failed.
[[noreturn]] inline void fail_system() { throw Error(std::strerror(errno)); }

/// Owns a file descriptor.
class Descriptor {
 public:
  /// Takes the descriptor that a system call returned. Throws Error if the call failed.
  explicit Descriptor(int id) : id_(id) {
    if (id < 0) fail_system();
  }
  ~Descriptor() { ::close(id_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator int() const { return id_; }

 private:
  int id_;
};

/// Returns everything that can be read from a file, pipe or device. Throws Error with the system's reason.
inline std::string read_everything(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  while (true) {
    constexpr std::size_t piece = 1 << 16;
    const std::size_t before = text.size();
    text.resize(before + piece);
    const auto n = ::read(file, text.data() + before, piece);
    text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    if (n == 0) return text;
    if (n < 0 && errno != EINTR) fail_system();
  }
}

/// Writes `bytes` at byte `at` of a file. Throws Error if it cannot.
inline void write_all(int to, std::span<const std::byte> bytes, off_t at) {
  while (!bytes.empty()) {
    const auto n = pwrite(to, bytes.data(), bytes.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_system();
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    at += n;
  }
}

/// Reads `bytes` from byte `at` on. Throws Error if the file is too short.
inline void read_all(int from, std::span<std::byte> bytes, off_t at) {
  while (!bytes.empty()) {
    const auto n = pread(from, bytes.data(), bytes.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_system();
    if (n == 0) throw Error("the file ends early");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    at += n;
  }
}

}  // namespace partita
