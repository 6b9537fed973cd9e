#include "src/comm/shared_memory/segments.hpp"

#include <sys/mman.h>
#include <sys/statvfs.h>

#include <utility>

namespace partita {

Segments::Segments(std::vector<std::byte*> parts, Index bytes) : parts_(std::move(parts)), bytes_(bytes) {}

Segments::~Segments() {
  for (std::byte* part : parts_)
    if (part != nullptr) munmap(part, static_cast<std::size_t>(bytes_));
}

Index free_shared_bytes() {
  struct statvfs system {};
  if (statvfs("/dev/shm", &system) != 0) return -1;
  return static_cast<Index>(system.f_bavail) * static_cast<Index>(system.f_frsize);
}

}  // namespace partita
