// Compares saving a checkpoint of 100 million weights, replicated on all ranks, with writing plain files of the same
// size in the same folder, one a rank. On one rank it also compares loading with reading. Writes end with fsync; reads
// begin without the file in the page cache.
//   build/mpiexec -n 2 build/bench/checkpoint [FOLDER]
#include "partita/train/checkpoint/checkpoint.hpp"
#include "bench/support/measure.hpp"
#include "partita/comm/mpi.hpp"
#include "partita/comm/process_grid.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <vector>

using namespace partita;

namespace {

constexpr Index tensors = 10, rows = 3162, columns = 3163;  // 10 million weights per tensor

/// Writes or reads a whole file in the simplest way.
class PlainFile {
 public:
  PlainFile(std::string path, Index bytes) : path_(std::move(path)), bytes_(static_cast<std::size_t>(bytes)) {}
  ~PlainFile() { unlink(path_.c_str()); }
  PlainFile(const PlainFile&) = delete;
  PlainFile& operator=(const PlainFile&) = delete;

  void write() const {
    unlink(path_.c_str());
    const int file = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    for (std::size_t at = 0; at < bytes_.size();)
      at += static_cast<std::size_t>(check(::write(file, bytes_.data() + at, bytes_.size() - at)));
    check(fsync(file));
    close(file);
  }
  void read() {
    const int file = open(path_.c_str(), O_RDONLY);
    for (std::size_t at = 0; at < bytes_.size();)
      at += static_cast<std::size_t>(check(::read(file, bytes_.data() + at, bytes_.size() - at)));
    close(file);
  }
  /// Drops the file from the page cache.
  static void forget(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
  }
  const std::string& path() const { return path_; }

 private:
  static ssize_t check(ssize_t result) {
    if (result < 0) fail("cannot write or read the file in this folder: {}", std::strerror(errno));
    return result;
  }
  std::string path_;
  std::vector<std::byte> bytes_;
};

}  // namespace

int main(int argc, char** argv) {
  MpiSession session(argc, argv);
  const auto world = session.world();
  const std::string folder = argc > 1 ? argv[1] : ".", ours = folder + "/bench-checkpoint.h5";
  const ProcessGrid grid(Grid::parse(fmt::format("data={}", world->size())), world, {});
  const auto allocator = std::make_shared<Allocator>();
  std::vector<NamedTensor> named;
  for (Index i = 0; i < tensors; ++i) {
    const auto layout = Layout::parse("", {{'F', rows}, {'C', columns}}, grid.grid());
    named.push_back(
        {fmt::format("fc{}/weight", i), {layout, world->rank(), DType::f32, allocator, MemoryClass::weights}});
  }
  PlainFile plain(fmt::format("{}/bench-plain-{}", folder, world->rank()),
                  tensors * rows * columns * size_of(DType::f32) / world->size());
  bench::print(MPI_COMM_WORLD, "checkpoint", "save-100M",
               bench::compare(
                   MPI_COMM_WORLD, [&] { save_checkpoint(ours, named, {}, grid.world()); }, [&] { plain.write(); }, 20),
               "a plain file");
  const auto load = [&] {
    PlainFile::forget(ours);
    load_checkpoint(ours, named, grid.world());
  };
  const auto read = [&] {
    PlainFile::forget(plain.path());
    plain.read();
  };
  if (world->size() == 1)
    bench::print(MPI_COMM_WORLD, "checkpoint", "load-100M", bench::compare(MPI_COMM_WORLD, load, read, 20),
                 "a plain file");
  if (world->rank() == 0) unlink(ours.c_str());
  return 0;
}
