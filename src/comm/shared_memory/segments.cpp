#include "src/comm/shared_memory/segments.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <string>

namespace partita {

namespace {

constexpr std::size_t name_bytes = 48;
using Name = std::array<char, name_bytes>;  // empty if the rank has no segment

/// The file of a segment in shared memory, until all ranks have mapped it.
class SegmentFile {
 public:
  /// Creates a file under a new name and reserves its pages.
  explicit SegmentFile(Index bytes) {
    // Ranks in containers may have equal process numbers, and each container its own shared memory. A random number
    // keeps a rank from mapping a segment of its own in place of another rank's, which it cannot reach.
    std::uint64_t number = 0;
    int file = -1;
    do {
      if (getrandom(&number, sizeof(number), 0) != sizeof(number)) break;
      fmt::format_to_n(name_.data(), name_.size() - 1, "/partita-{}-{:016x}", getpid(), number);
      file = shm_open(name_.data(), O_CREAT | O_EXCL | O_RDWR, S_IRUSR | S_IWUSR);
    } while (file < 0 && errno == EEXIST);
    if (file < 0) {
      name_ = {};
      return;
    }
    int problem = 0;
    do problem = posix_fallocate(file, 0, bytes);
    while (problem == EINTR);
    close(file);
    if (problem != 0) remove();
  }
  ~SegmentFile() { remove(); }
  SegmentFile(const SegmentFile&) = delete;
  SegmentFile& operator=(const SegmentFile&) = delete;
  const Name& name() const { return name_; }

 private:
  void remove() {
    if (name_[0] != '\0') shm_unlink(name_.data());
    name_ = {};
  }

  Name name_{};
};

/// Returns the address of a segment, or null.
std::byte* map_segment(const Name& name, Index bytes) {
  const int file = shm_open(name.data(), O_RDWR, 0);
  if (file < 0) return nullptr;
  void* at = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

}  // namespace

std::unique_ptr<Segments> Segments::make(MPI_Comm comm, Index bytes) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  const SegmentFile file(bytes);
  std::vector<Name> names(static_cast<std::size_t>(size));
  MPI_Allgather(file.name().data(), name_bytes, MPI_CHAR, names.data(), name_bytes, MPI_CHAR, comm);
  if (std::any_of(names.begin(), names.end(), [](const Name& name) { return name[0] == '\0'; })) return nullptr;
  std::unique_ptr<Segments> segments(new Segments(bytes));
  for (const Name& name : names) segments->parts_.push_back(map_segment(name, bytes));
  int mapped = std::count(segments->parts_.begin(), segments->parts_.end(), nullptr) == 0 ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &mapped, 1, MPI_INT, MPI_MIN, comm);  // after it, nobody needs the names any more
  return mapped == 1 ? std::move(segments) : nullptr;
}

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
