#include "src/comm/shared_memory/between_processes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace partita {

namespace {

constexpr std::size_t name_bytes = 48;
using Name = std::array<char, name_bytes>;  // empty if the rank has no segment

constexpr std::string_view prefix = "partita-";
constexpr std::size_t random_digits = 16;

/// True for the names that SegmentFile gives: the prefix, a process number, and a random number in hexadecimal digits.
bool is_segment(std::string_view name) {
  if (!name.starts_with(prefix)) return false;
  const auto number = name.substr(prefix.size());
  const auto end = number.find_first_not_of("0123456789");
  return end != 0 && end != std::string_view::npos && number[end] == '-' && number.size() == end + 1 + random_digits &&
         number.find_first_not_of("0123456789abcdef", end + 1) == std::string_view::npos;
}

/// The file of a segment in shared memory, until all ranks have mapped it. It is locked meanwhile.
class SegmentFile {
 public:
  /// Creates a file under a new name and reserves its pages.
  explicit SegmentFile(Index bytes) {
    static std::once_flag once;
    std::call_once(once, [] { remove_abandoned_segments("/dev/shm", 60); });
    // Ranks in containers may have equal process numbers, and each container its own shared memory. A random number
    // keeps a rank from mapping a segment of its own in place of another rank's, which it cannot reach.
    std::uint64_t number = 0;
    do {
      if (getrandom(&number, sizeof(number), 0) != sizeof(number)) break;
      fmt::format_to_n(name_.data(), name_.size() - 1, "/{}{}-{:0{}x}", prefix, getpid(), number, random_digits);
      file_ = shm_open(name_.data(), O_CREAT | O_EXCL | O_RDWR, S_IRUSR | S_IWUSR);
    } while (file_ < 0 && errno == EEXIST);
    if (file_ < 0) {
      name_ = {};
      return;
    }
    static_cast<void>(flock(file_, LOCK_EX));
    int problem = 0;
    do problem = posix_fallocate(file_, 0, bytes);
    while (problem == EINTR);
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
    if (file_ >= 0) close(std::exchange(file_, -1));
  }

  Name name_{};
  int file_ = -1;
};

/// Returns the address of a segment, or null.
std::byte* map_segment(const Name& name, Index bytes) {
  const int file = shm_open(name.data(), O_RDWR, 0);
  if (file < 0) return nullptr;
  void* at = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

/// Reserves `bytes` bytes on every rank, all pages of them, so that no later access can fail for want of memory.
/// Returns null on every rank if it fails on any rank. Collective: every rank of `comm` calls it.
std::unique_ptr<Segments> reserve(MPI_Comm comm, Index bytes) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  const SegmentFile file(bytes);
  std::vector<Name> names(static_cast<std::size_t>(size));
  MPI_Allgather(file.name().data(), name_bytes, MPI_CHAR, names.data(), name_bytes, MPI_CHAR, comm);
  if (std::any_of(names.begin(), names.end(), [](const Name& name) { return name[0] == '\0'; })) return nullptr;
  std::vector<std::byte*> parts;
  for (const Name& name : names) parts.push_back(map_segment(name, bytes));
  int mapped = std::count(parts.begin(), parts.end(), nullptr) == 0 ? 1 : 0;
  auto segments = std::make_unique<Segments>(std::move(parts), bytes);
  MPI_Allreduce(MPI_IN_PLACE, &mapped, 1, MPI_INT, MPI_MIN, comm);  // after it, nobody needs the names any more
  return mapped == 1 ? std::move(segments) : nullptr;
}

}  // namespace

void remove_abandoned_segments(const std::string& folder, std::time_t seconds) {
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(folder, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string path = entry->path();
    if (!is_segment(entry->path().filename().string())) continue;
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) continue;
    struct stat there {};
    if (fstat(file, &there) == 0 && there.st_uid == geteuid() && std::time(nullptr) - there.st_ctime >= seconds &&
        flock(file, LOCK_EX | LOCK_NB) == 0)
      unlink(path.c_str());
    close(file);
  }
}

SharedByProcesses share_between_processes(MPI_Comm comm, bool wanted) {
  int rank = 0, size = 0, all_want = wanted ? 1 : 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  MPI_Allreduce(MPI_IN_PLACE, &all_want, 1, MPI_INT, MPI_MIN, comm);
  if (all_want == 0) return {};
  auto segments = reserve(comm, SharedMemory::bytes(size));
  if (!segments) return {nullptr, true};
  auto memory = std::make_unique<SharedMemory>(rank, size, std::move(segments));
  MPI_Barrier(comm);
  return {std::move(memory), false};
}

}  // namespace partita
